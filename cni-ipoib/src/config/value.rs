// SPDX-License-Identifier: Apache-2.0
//! Single values of the configuration, as they are written.

use crate::error::Error;
use common::rdma::Pkey;
use serde_json::Value;
use std::str::FromStr;

/// Parses a number, or a text in hexadecimal. `"8001"` could be either, so it is refused.
pub(super) fn pkey(key: &'static str, value: Option<&Value>) -> Result<Option<Pkey>, Error> {
    let number = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64().and_then(|n| u16::try_from(n).ok()),
        Some(Value::String(text)) => text
            .strip_prefix("0x")
            .or_else(|| text.strip_prefix("0X"))
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|hex| u16::from_str_radix(hex, 16).ok()),
        Some(_) => None,
    };
    match number {
        // ipoib_netlink.c refuses these two, which are not keys of a partition.
        Some(number) if Pkey(number).is_valid() => Ok(Some(Pkey(number))),
        _ => Err(Error::BadValue {
            key,
            value: value.map(Value::to_string).unwrap_or_default(),
            want: "a partition key such as \"0x8001\", neither 0 nor 0x8000".to_owned(),
        }),
    }
}

/// Go's JSON, for which templates are written, treats null and an empty text like an absent key.
pub(super) fn is_set(value: &Value) -> bool {
    !value.is_null() && value.as_str() != Some("")
}

/// Parses one word of a small set. An empty one counts as unset, as for peers.
pub(super) fn parse<T>(key: &'static str, text: Option<&str>) -> Result<Option<T>, Error>
where
    T: FromStr<Err: std::fmt::Display>,
{
    let Some(text) = text.filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|error: T::Err| Error::BadWord {
        key,
        reason: error.to_string(),
    })
}
