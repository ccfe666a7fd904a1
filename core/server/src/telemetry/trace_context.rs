//! The caller's trace, in W3C Trace Context form (OPS-012, ARC-099). Read whether or not traces are exported.

use std::fmt::{Display, Formatter};

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Length of `traceparent` in version 00: 2, 32, 16 and 2 digits, with a dash between them.
const LENGTH: usize = 55;

/// Where a request stands in a trace; an extension of every request that stands in one, for whoever calls others on its
/// behalf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span that comes next above what is called: the caller's, or the request's own where traces are exported.
    pub parent_id: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
    /// What tracing systems along the way have added, one header each.
    pub state: Vec<HeaderValue>,
}

/// Sixteen bytes, shown in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl Display for TraceId {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl TraceContext {
    /// What the headers say; `None` where they say nothing, or nothing valid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else {
            return None;
        };
        let (trace_id, parent_id, flags) = parse(parent.to_str().ok()?)?;
        Some(Self {
            trace_id: TraceId(trace_id),
            parent_id,
            sampled: flags & 1 == 1,
            state: headers.get_all(TRACESTATE).iter().cloned().collect(),
        })
    }
}

/// Trace id, parent id and flags. A later version may go on after another dash.
fn parse(text: &str) -> Option<(u128, u64, u8)> {
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split('-');
    let mut part = |digits: usize| {
        let part = parts.next()?;
        let lower = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        (part.len() == digits && part.bytes().all(lower)).then_some(part)
    };
    let (version, trace_id, parent_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let goes_on = match version {
        "ff" => return None,
        "00" => rest.is_empty(),
        _ => rest.is_empty() || rest.starts_with('-'),
    };
    let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
    let parent_id = u64::from_str_radix(parent_id, 16).ok()?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    (goes_on && trace_id != 0 && parent_id != 0).then_some((trace_id, parent_id, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const PARENT: u64 = 0xb7ad_6b71_6920_3331;

    fn of(parents: &[&'static str]) -> Option<TraceContext> {
        let headers = parents
            .iter()
            .map(|parent| (TRACEPARENT, HeaderValue::from_static(parent)));
        let state = [(TRACESTATE, HeaderValue::from_static("one=1,two=2"))];
        TraceContext::of(&headers.chain(state).collect())
    }

    #[test]
    fn arc_099_a_valid_context_is_taken_with_its_state() {
        for (text, sampled) in [
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                true,
            ),
            (
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-fe",
                false,
            ),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                true,
            ),
            (
                "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes",
                true,
            ),
        ] {
            let expected = TraceContext {
                trace_id: TraceId(TRACE),
                parent_id: PARENT,
                sampled,
                state: vec![HeaderValue::from_static("one=1,two=2")],
            };
            assert_eq!(of(&[text]), Some(expected), "{text}");
        }
        assert_eq!(
            TraceId(0xab).to_string(),
            "000000000000000000000000000000ab"
        );
    }

    #[test]
    fn arc_099_what_is_no_context_is_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[good, good]), None);
        for text in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00-0af7651916cd43dd8448eb211c8031-9cb7ad6b7169203331-01",
            "+0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        ] {
            assert_eq!(of(&[text]), None, "{text}");
        }
    }
}
