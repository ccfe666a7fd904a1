//! JSON-RPC: how a question is written and its answer read.

use alloy_json_rpc::{Id, Request, Response, ResponsePayload};
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::trouble::Trouble;

/// The id of every question: each has an exchange of its own.
const ID: Id = Id::Number(1);

/// Bytes as JSON-RPC writes them: `0x`, and pairs of hexadecimal digits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Data(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x");
        let bytes = digits.and_then(|digits| hex::decode(digits).ok());
        bytes
            .map(Self)
            .ok_or_else(|| Error::custom("expected 0x and pairs of digits"))
    }
}

/// A question as it is sent.
pub(crate) fn question(method: &'static str, parameters: Value) -> Vec<u8> {
    let request = Request::new(method, ID, parameters);
    serde_json::to_vec(&request).expect("JSON can be written as JSON")
}

/// Reads an answer to a question.
pub(crate) fn answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, Trouble> {
    let response: Response<Value, IgnoredAny> =
        serde_json::from_slice(body).map_err(|_| Trouble::Malformed)?;
    match response.payload {
        ResponsePayload::Failure(_) => Err(Trouble::RpcError),
        ResponsePayload::Success(result) if response.id == ID => {
            serde_json::from_value(result).map_err(|_| Trouble::Malformed)
        }
        ResponsePayload::Success(_) => Err(Trouble::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::U64;

    use super::*;

    #[test]
    fn a_question_is_json_rpc() {
        let question: Value =
            serde_json::from_slice(&question("eth_chainId", Value::Array(vec![]))).unwrap();
        let expected = r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;
        assert_eq!(question, serde_json::from_str::<Value>(expected).unwrap());
    }

    #[test]
    fn s18_what_is_no_answer_is_malformed_and_an_error_says_so() {
        let number = |result: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            answer::<U64>(body.as_bytes()).map(|number| number.to::<u64>())
        };
        assert_eq!(number(r#""0x0""#), Ok(0));
        assert_eq!(number(r#""0xffffffffffffffff""#), Ok(u64::MAX));
        for result in [
            r#""0x10000000000000000""#,
            r#""0xg""#,
            r#""latest""#,
            "null",
            "{}",
            "[]",
            "-1",
            "1.5",
        ] {
            assert_eq!(number(result), Err(Trouble::Malformed), "{result}");
        }
        for (body, trouble) in [
            (
                r#"{"jsonrpc":"2.0","id":2,"result":"0x01"}"#,
                Trouble::Malformed,
            ),
            (
                r#"{"jsonrpc":"2.0","id":"1","result":"0x01"}"#,
                Trouble::Malformed,
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, Trouble::Malformed),
            (
                r#"[{"jsonrpc":"2.0","id":1,"result":"0x01"}]"#,
                Trouble::Malformed,
            ),
            ("", Trouble::Malformed),
            ("<html></html>", Trouble::Malformed),
            ("\"0x01\"", Trouble::Malformed),
            ("\u{0}\u{1}", Trouble::Malformed),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":3,"message":"execution reverted","data":"0x01"}}"#,
                Trouble::RpcError,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"slow down"}}"#,
                Trouble::RpcError,
            ),
        ] {
            assert_eq!(answer::<Data>(body.as_bytes()), Err(trouble), "{body}");
        }
        for result in [
            r#""0x0""#,
            r#""0xzz""#,
            r#""01""#,
            r#""0X01""#,
            r#""""#,
            "1",
            "null",
            "{}",
            "true",
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let bytes = answer::<Data>(body.as_bytes());
            assert_eq!(bytes, Err(Trouble::Malformed), "{result}");
        }
    }
}
