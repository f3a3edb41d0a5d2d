// SPDX-License-Identifier: Apache-2.0
use super::super::Config;
use super::*;
use crate::model::call;
use serde_json::json;

fn read(rdma: &Value) -> Result<Option<Rdma>, (u32, String)> {
    Config::read(&call(json!({"rdma": rdma})))
        .map(|config| config.rdma)
        .map_err(|error| (error.code.0, error.msg))
}

fn asked(rdma: &Value) -> Rdma {
    read(rdma).unwrap().unwrap()
}

#[test]
fn without_the_key_no_device_is_requested() {
    assert_eq!(Config::read(&call(json!({}))).unwrap().rdma, None);
    assert_eq!(read(&Value::Null), Ok(None));
    assert_eq!(asked(&json!({})), Rdma::default());
    let empty = json!({"netns": "", "device": "", "rename": "", "required": null});
    assert_eq!(asked(&empty), Rdma::default());
}

#[test]
fn every_key_is_read() {
    let all = json!({"netns": "exclusive", "device": "mlx5_*", "rename": "rdma0", "required": false});
    let expected = Rdma {
        netns: RdmaNetns::Exclusive,
        device: Some(Pattern::new("mlx5_*").unwrap()),
        rename: Some("rdma0".to_owned()),
        required: false,
    };
    assert_eq!(asked(&all), expected);
    assert_eq!(asked(&json!({"netns": "shared"})).netns, RdmaNetns::Shared);
    assert_eq!(asked(&json!({"netns": "auto"})).netns, RdmaNetns::Auto);
}

#[test]
fn a_specific_request_for_a_device_is_required() {
    for (keys, required) in [
        (json!({}), false),
        (json!({"netns": "shared"}), false),
        (json!({"required": true}), true),
        (json!({"netns": "exclusive"}), true),
        (json!({"device": "mlx5_0"}), true),
        (json!({"rename": "rdma0"}), true),
        (json!({"device": "mlx5_0", "required": false}), false),
    ] {
        assert_eq!(asked(&keys).required, required, "{keys}");
    }
}

#[test]
fn an_impossible_request_is_refused_by_its_key() {
    let long = "x".repeat(64);
    let name = "at most 63 letters, digits, '_', '-' and '.', the first not '.'";
    for (keys, code, text) in [
        (
            json!({"netns": "private"}),
            7,
            "rdma.netns: \"private\" is not one of auto, shared, exclusive".to_owned(),
        ),
        (
            json!({"device": "mlx5_[0"}),
            7,
            "rdma.device is \"mlx5_[0\", want a name such as \"mlx5_0\" or a pattern such as \"mlx5_*\" (Pattern syntax error near position 5: invalid range pattern)".to_owned(),
        ),
        (json!({"rename": "a/b"}), 7, format!("rdma.rename is \"a/b\", want {name}")),
        (json!({"rename": ".."}), 7, format!("rdma.rename is \"..\", want {name}")),
        (json!({"rename": long}), 7, format!("rdma.rename is \"{long}\", want {name}")),
        (
            json!({"netns": "shared", "rename": "rdma0"}),
            2,
            "rdma.rename rdma0 is not supported: a shared device has one name for all pods; remove it, or set rdma.netns to exclusive".to_owned(),
        ),
    ] {
        assert_eq!(read(&keys), Err((code, text)), "{keys}");
    }
}

#[test]
fn a_misspelt_key_is_refused_with_a_suggestion() {
    let (code, text) = read(&json!({"devices": "mlx5_0"})).unwrap_err();
    assert_eq!(code, 7);
    assert!(text.contains("did you mean rdma.device?"), "{text}");
    assert_eq!(read(&json!("exclusive")).unwrap_err().0, 6);
}
