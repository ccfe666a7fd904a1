//! Reads the presentation language of TLS as MLS uses it (RFC 9420, section 2.1).

/// The bytes end early, or a length is not written in its shortest form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// What is left to read. Nothing is copied, and no length is believed before its bytes are there.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are left.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A vector of variable length (RFC 9420, section 2.1.2).
    pub(super) fn vector(&mut self) -> Result<&'a [u8], Malformed> {
        let first = self.u8()?;
        let low = u32::from(first & 0x3f);
        let (len, least) = match first >> 6 {
            0 => (low, 0),
            1 => (low << 8 | u32::from(self.u8()?), 1 << 6),
            2 => {
                let [a, b, c] = self.array()?;
                (u32::from_be_bytes([first & 0x3f, a, b, c]), 1 << 14)
            }
            _ => return Err(Malformed),
        };
        if len < least {
            return Err(Malformed);
        }
        self.take(usize::try_from(len).map_err(|_| Malformed)?)
    }

    /// A vector of numbers of two bytes.
    pub(super) fn u16s(&mut self) -> Result<Vec<u16>, Malformed> {
        let bytes = self.vector()?;
        let (numbers, rest) = bytes.as_chunks();
        if !rest.is_empty() {
            return Err(Malformed);
        }
        Ok(numbers.iter().copied().map(u16::from_be_bytes).collect())
    }
}
