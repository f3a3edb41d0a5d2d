// SPDX-License-Identifier: Apache-2.0
//! Reads a JSON value into a Rust type by the rules of Go's `encoding/json`, for which runtimes and templates
//! are written.
//!
//! Invariant: a struct is read only from an object, and a null member is absent, at any depth. serde alone
//! accepts a list in place of a struct, so that `"dns": []` would be a valid `dns`.

use super::error::{Code, Error};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error as JsonError, Map, Value};
use std::str::FromStr;

/// Reads `value` as a `T` by the rules of Go's JSON: a null member is absent, and a list is not an object.
///
/// # Errors
/// [`Code::DECODE`] with the JSON path of the first value that has a wrong type.
pub fn decode<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(Plain(value)).map_err(|e| {
        let path = e.path().to_string();
        let place = if path == "." {
            String::new()
        } else {
            format!("{path}: ")
        };
        Error::new(
            Code::DECODE,
            format!("network configuration: {place}{}", e.inner()),
        )
    })
}

/// For `#[serde(deserialize_with)]`: an empty text counts as absent, as in Go's `net.IP`.
///
/// # Errors
/// The text is not a `T`.
pub fn empty_is_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    let set = text.filter(|text| !text.is_empty());
    set.map(|text| text.parse().map_err(serde::de::Error::custom))
        .transpose()
}

/// A value to deserialize by these rules.
#[derive(Clone, Copy)]
struct Plain<'de>(&'de Value);

impl<'de> Plain<'de> {
    fn object<V: Visitor<'de>>(object: &'de Map<String, Value>, visitor: V) -> Result<V::Value, JsonError> {
        let members = object.iter().filter(|(_, value)| !value.is_null());
        visitor.visit_map(MapDeserializer::new(
            members.map(|(key, value)| (key.as_str(), Self(value))),
        ))
    }

    fn list<V: Visitor<'de>>(list: &'de [Value], visitor: V) -> Result<V::Value, JsonError> {
        let mut items = SeqDeserializer::new(list.iter().map(Plain));
        let read = visitor.visit_seq(&mut items)?;
        items.end()?;
        Ok(read)
    }
}

impl<'de> IntoDeserializer<'de, JsonError> for Plain<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Plain<'de> {
    type Error = JsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.0 {
            Value::Array(list) => Self::list(list, visitor),
            Value::Object(object) => Self::object(object, visitor),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, JsonError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        match self.0 {
            Value::Array(_) => Err(JsonError::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, JsonError> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests;
