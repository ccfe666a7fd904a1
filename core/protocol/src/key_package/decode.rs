//! The bytes of a key package (RFC 9420, sections 7.2 and 10; contract of identities, section 7.1).

use std::collections::HashSet;

use super::reader::{Malformed, Reader};

/// Known cipher suites: those of RFC 9420, and X-Wing.
const CIPHER_SUITES: [u16; 8] = [1, 2, 3, 4, 5, 6, 7, 0x004D];

/// Credential types (RFC 9420, section 17.5).
pub(super) const BASIC_CREDENTIAL: u16 = 1;

/// Extension types (RFC 9420, section 17.3). Of these the data are decoded; others are opaque.
mod extension_type {
    pub(super) const APPLICATION_ID: u16 = 1;
    pub(super) const RATCHET_TREE: u16 = 2;
    pub(super) const REQUIRED_CAPABILITIES: u16 = 3;
    pub(super) const EXTERNAL_PUB: u16 = 4;
    pub(super) const EXTERNAL_SENDERS: u16 = 5;
    pub(super) const LAST_RESORT: u16 = 0x000a;
}

/// A key package that decodes. It borrows the bytes that it was decoded from.
pub(crate) struct KeyPackage<'a> {
    pub(super) version: u16,
    pub(super) cipher_suite: u16,
    pub(super) init_key: &'a [u8],
    pub(super) leaf: LeafNode<'a>,
    /// The types of the extensions, each once.
    pub(super) extensions: Vec<u16>,
    /// What `signature` signs, without its label: everything before it.
    pub(super) to_be_signed: &'a [u8],
    pub(super) signature: &'a [u8],
}

pub(super) struct LeafNode<'a> {
    pub(super) encryption_key: &'a [u8],
    pub(super) signature_key: &'a [u8],
    pub(super) credential: Credential<'a>,
    /// The extension types among the capabilities.
    pub(super) capable_of: Vec<u16>,
    pub(super) source: LeafNodeSource,
    /// What `signature` signs, without its label: everything before it. True of leaf nodes in key
    /// packages alone.
    pub(super) to_be_signed: &'a [u8],
    pub(super) signature: &'a [u8],
}

pub(super) struct Credential<'a> {
    pub(super) credential_type: u16,
    pub(super) content: &'a [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafNodeSource {
    /// Of a key package: from the first second on, until before the second, in Unix seconds.
    KeyPackage {
        not_before: u64,
        not_after: u64,
    },
    Update,
    Commit,
}

impl<'a> KeyPackage<'a> {
    /// Decodes a key package that takes up all of `bytes`.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let package = Self::read(bytes, &mut reader).ok()?;
        reader.is_empty().then_some(package)
    }

    /// The key that the package is stored under.
    pub(crate) const fn signature_key(&self) -> &'a [u8] {
        self.leaf.signature_key
    }

    fn read(bytes: &'a [u8], reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let version = reader.u16()?;
        let cipher_suite = reader.u16()?;
        if !CIPHER_SUITES.contains(&cipher_suite) {
            return Err(Malformed);
        }
        let init_key = reader.vector()?;
        let leaf = LeafNode::read(bytes, reader)?;
        let extensions = extensions(reader.vector()?)?;
        let to_be_signed = before(bytes, reader);
        Ok(Self {
            version,
            cipher_suite,
            init_key,
            leaf,
            extensions,
            to_be_signed,
            signature: reader.vector()?,
        })
    }
}

impl<'a> LeafNode<'a> {
    /// Reads a leaf node. `bytes` is what `reader` reads from.
    fn read(bytes: &'a [u8], reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = bytes.len() - reader.len();
        let encryption_key = reader.vector()?;
        let signature_key = reader.vector()?;
        let credential = Credential::read(reader)?;
        let capable_of = capabilities(reader)?;
        let source = LeafNodeSource::read(reader)?;
        extensions(reader.vector()?)?;
        let to_be_signed = &before(bytes, reader)[start..];
        Ok(Self {
            encryption_key,
            signature_key,
            credential,
            capable_of,
            source,
            to_be_signed,
            signature: reader.vector()?,
        })
    }
}

impl<'a> Credential<'a> {
    /// Every type, known or not, holds one vector.
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            credential_type: reader.u16()?,
            content: reader.vector()?,
        })
    }
}

impl LeafNodeSource {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.u8()? {
            1 => Self::KeyPackage {
                not_before: reader.u64()?,
                not_after: reader.u64()?,
            },
            2 => Self::Update,
            3 => {
                let _parent_hash = reader.vector()?;
                Self::Commit
            }
            _ => return Err(Malformed),
        })
    }
}

/// What was read so far.
fn before<'a>(bytes: &'a [u8], reader: &Reader<'_>) -> &'a [u8] {
    &bytes[..bytes.len() - reader.len()]
}

/// Reads versions, cipher suites, extensions, proposals and credentials, and returns the extensions.
fn capabilities(reader: &mut Reader<'_>) -> Result<Vec<u16>, Malformed> {
    let [_versions, _cipher_suites] = [reader.u16s()?, reader.u16s()?];
    let extensions = reader.u16s()?;
    let [_proposals, _credentials] = [reader.u16s()?, reader.u16s()?];
    Ok(extensions)
}

/// Reads a list of extensions, and returns their types. No type stands in it twice.
fn extensions(list: &[u8]) -> Result<Vec<u16>, Malformed> {
    let mut reader = Reader::new(list);
    let mut types = Vec::new();
    let mut seen = HashSet::new();
    while !reader.is_empty() {
        let extension_type = reader.u16()?;
        check_extension(extension_type, reader.vector()?)?;
        if !seen.insert(extension_type) {
            return Err(Malformed);
        }
        types.push(extension_type);
    }
    Ok(types)
}

/// Decodes the data of an extension whose type is known.
fn check_extension(extension_type: u16, data: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(data);
    match extension_type {
        extension_type::APPLICATION_ID | extension_type::EXTERNAL_PUB => {
            reader.vector()?;
        }
        extension_type::RATCHET_TREE => ratchet_tree(reader.vector()?)?,
        extension_type::REQUIRED_CAPABILITIES => {
            for _list in ["extensions", "proposals", "credentials"] {
                reader.u16s()?;
            }
        }
        extension_type::EXTERNAL_SENDERS => {
            let mut senders = Reader::new(reader.vector()?);
            while !senders.is_empty() {
                let _signature_key = senders.vector()?;
                Credential::read(&mut senders)?;
            }
        }
        extension_type::LAST_RESORT => {}
        _ => return Ok(()),
    }
    if reader.is_empty() {
        Ok(())
    } else {
        Err(Malformed)
    }
}

/// Reads the nodes of a ratchet tree, each of which may be blank.
fn ratchet_tree(nodes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(nodes);
    while !reader.is_empty() {
        match reader.u8()? {
            0 => continue,
            1 => {}
            _ => return Err(Malformed),
        }
        match reader.u8()? {
            1 => {
                LeafNode::read(nodes, &mut reader)?;
            }
            2 => {
                let [_encryption_key, _parent_hash] = [reader.vector()?, reader.vector()?];
                let unmerged_leaves = reader.vector()?;
                if !unmerged_leaves.len().is_multiple_of(size_of::<u32>()) {
                    return Err(Malformed);
                }
            }
            _ => return Err(Malformed),
        }
    }
    Ok(())
}
