//! Cursors: API-004, API-286.

use xmtp_protocol::{SequenceId, SequenceIdError, proto::xmtp::backend::v1::Cursor};

const LAST: u64 = 9_223_372_036_854_775_807;

#[test]
fn api_004_positions_above_the_signed_range_are_refused() {
    assert_eq!(SequenceId::try_from(LAST), Ok(SequenceId::MAX));
    assert_eq!(SequenceId::try_from(LAST + 1), Err(SequenceIdError));
    assert_eq!(SequenceId::try_from(u64::MAX), Err(SequenceIdError));
    assert_eq!(SequenceId::try_from(-1_i64), Err(SequenceIdError));
    assert_eq!(SequenceId::try_from(i64::MIN), Err(SequenceIdError));
}

#[test]
fn api_004_an_absent_cursor_is_the_start() {
    let at = |sequence_id| SequenceId::from_cursor(Some(&Cursor { sequence_id }));
    assert_eq!(SequenceId::from_cursor(None), Ok(SequenceId::START));
    assert_eq!(at(0), Ok(SequenceId::START));
    assert_eq!(at(LAST), Ok(SequenceId::MAX));
    assert_eq!(at(LAST + 1), Err(SequenceIdError));
}

#[test]
fn positions_keep_their_value_and_order() {
    let values = [0, 1, 41, u64::from(u32::MAX), LAST];
    let ids = values.map(|value| SequenceId::try_from(value).expect("a value in range"));
    assert!(ids.is_sorted());
    for (id, value) in ids.into_iter().zip(values) {
        assert_eq!(u64::from(id), value);
        assert_eq!(SequenceId::try_from(i64::from(id)), Ok(id));
        assert!(Cursor::from(id) == Cursor { sequence_id: value });
    }
}
