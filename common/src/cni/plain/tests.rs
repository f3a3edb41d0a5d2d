// SPDX-License-Identifier: Apache-2.0
use super::{decode, empty_is_none};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Outer {
    name: String,
    count: Option<u16>,
    inner: Inner,
    list: Vec<Inner>,
    any: Option<Value>,
    #[serde(deserialize_with = "empty_is_none")]
    gw: Option<IpAddr>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Inner {
    words: Vec<String>,
    pair: Option<(u8, u8)>,
}

fn refused(document: &Value) -> String {
    decode::<Outer>(document).unwrap_err().msg
}

#[test]
fn a_list_is_not_accepted_in_place_of_an_object() {
    assert_eq!(
        refused(&json!({"inner": []})),
        "network configuration: inner: invalid type: sequence, expected an object"
    );
    let nested = refused(&json!({"list": [{}, [["a"], null]]}));
    assert!(nested.contains("list[1]: invalid type: sequence"), "{nested}");
    assert!(refused(&json!(["a", 7])).contains("expected an object"));
}

#[test]
fn a_null_member_counts_as_absent_at_any_depth() {
    let read: Outer =
        decode(&json!({"name": null, "count": null, "inner": {"words": null}, "list": null, "gw": null}))
            .unwrap();
    assert_eq!(read, Outer::default());
    let nested: Outer = decode(&json!({"any": {"a": null, "b": [null]}})).unwrap();
    assert_eq!(nested.any, Some(json!({"b": [null]})));
}

#[test]
fn an_empty_text_counts_as_no_address() {
    let read: Outer = decode(&json!({"gw": ""})).unwrap();
    assert_eq!(read.gw, None);
    let read: Outer = decode(&json!({"gw": "10.0.0.1"})).unwrap();
    assert_eq!(read.gw, Some("10.0.0.1".parse().unwrap()));
    assert!(refused(&json!({"gw": "10.0.0"})).contains("gw: "));
}

#[test]
fn errors_name_the_path_of_the_invalid_value() {
    let read: Outer = decode(&json!({
        "name": "a", "count": 7, "inner": {"words": ["x"], "pair": [1, 2]}, "list": [{"words": ["y"]}],
    }))
    .unwrap();
    assert_eq!((read.name.as_str(), read.count), ("a", Some(7)));
    assert_eq!(read.inner.pair, Some((1, 2)));
    assert_eq!(read.list[0].words, ["y"]);
    let wrong = refused(&json!({"inner": {"words": ["x", 7]}}));
    assert!(wrong.contains("inner.words[1]: invalid type: integer"), "{wrong}");
    assert!(refused(&json!({"inner": {"pair": [1, 2, 3]}})).contains("inner.pair"));
}
