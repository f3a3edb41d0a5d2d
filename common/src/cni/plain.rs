// SPDX-License-Identifier: Apache-2.0
//! Reads a JSON value into a Rust type by the rules of Go's `encoding/json`, for which runtimes and templates
//! are written.
//!
//! Invariant: a struct is read only from an object, and a null member is absent, at any depth. serde alone
//! accepts a list in place of a struct, so that `"dns": []` would be a valid `dns`.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// A value to deserialize by these rules.
#[derive(Clone, Copy)]
pub(super) struct Plain<'de>(pub(super) &'de Value);

impl<'de> Plain<'de> {
    fn object<V: Visitor<'de>>(object: &'de Map<String, Value>, visitor: V) -> Result<V::Value, Error> {
        let members = object.iter().filter(|(_, value)| !value.is_null());
        visitor.visit_map(MapDeserializer::new(
            members.map(|(key, value)| (key.as_str(), Self(value))),
        ))
    }

    fn list<V: Visitor<'de>>(list: &'de [Value], visitor: V) -> Result<V::Value, Error> {
        let mut items = SeqDeserializer::new(list.iter().map(Plain));
        let read = visitor.visit_seq(&mut items)?;
        items.end()?;
        Ok(read)
    }
}

impl<'de> IntoDeserializer<'de, Error> for Plain<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Plain<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(list) => Self::list(list, visitor),
            Value::Object(object) => Self::object(object, visitor),
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
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
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests;
