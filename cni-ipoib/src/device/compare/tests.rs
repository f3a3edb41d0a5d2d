// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{WAYS, add, rig};
use common::cni::dispatch::Plugin as _;
use common::cni::{Code, Version};
use serde_json::{Value, json};

fn keys(prev: &Value) -> Value {
    json!({"mode": "device", "master": "ib0", "prevResult": prev})
}

#[test]
fn check_compares_with_the_journal() {
    for way in WAYS {
        let rig = rig(way);
        let prev = add(&rig, "ib0").unwrap().to_json(Version::V1_1_0);
        let check = || {
            let call = rig.call(&keys(&prev));
            rig.plugin()
                .check(&call, &crate::model::attachment("c1"), &rig.pod.path())
        };
        check().unwrap_or_else(|e| panic!("{way:?}: {e:?}"));
        rig.kernel.set().state.pod[0].up = false;
        rig.kernel.set().state.pod[0].device = Some("pci/0000:00:00.0".to_owned());
        let error = check().unwrap_err();
        assert_eq!(error.code, Code::CHECK_FAILED);
        for want in ["it is not ib0 of the host", "it is down"] {
            assert!(error.msg.contains(want), "{want:?} is not in {:?}", error.msg);
        }
    }
}

#[test]
fn status_accepts_a_link_that_is_in_a_pod() {
    let rig = rig(WAYS[0]);
    let keys = json!({"mode": "device", "master": "ib0"});
    rig.status(&keys).unwrap();
    add(&rig, "ib0").unwrap();
    rig.status(&keys).unwrap();
    rig.del("c1").unwrap();
    rig.node.write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    assert_eq!(rig.status(&keys).unwrap_err().code, Code::LIMITED);
    let missing = json!({"mode": "device", "master": "ib9"});
    assert_eq!(rig.status(&missing).unwrap_err().code, Code::NOT_AVAILABLE);
}
