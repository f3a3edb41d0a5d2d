// SPDX-License-Identifier: Apache-2.0
use super::DeviceError;
use common::cni::Code;
use common::rdma::Guid;
use std::time::Duration;

#[test]
fn each_error_has_its_code_and_a_remedy() {
    let link = || "ib1".to_owned();
    let table = [
        (
            DeviceError::Kept {
                link: link(),
                reason: "it is a port of bond0".to_owned(),
                remedy: "name another".to_owned(),
            },
            Code::INVALID_CONFIG,
            "ib1 is not moved into the pod: it is a port of bond0; name another",
        ),
        (
            DeviceError::Taken {
                link: link(),
                holder: "a/net1".to_owned(),
            },
            Code::TRY_AGAIN,
            "ib1 belongs to a/net1; try again after that pod is deleted",
        ),
        (
            DeviceError::GuidInUse {
                link: link(),
                guid: Guid(0x21),
                holder: "fabric/net1 of container c2".to_owned(),
            },
            Code::INVALID_CONFIG,
            "ib1 is not given the GUID 0000:0000:0000:0021: fabric/net1 of container c2 has it; ask for another one",
        ),
        (
            DeviceError::Lost {
                link: link(),
                reason: "it went".to_owned(),
            },
            Code::KERNEL,
            "ib1 is lost: it went; look for its driver in the kernel's log",
        ),
        (
            DeviceError::Away {
                link: link(),
                waited: Duration::from_secs(5),
            },
            Code::TRY_AGAIN,
            "ib1 did not come back from the pod within 5s: the kernel still removes its namespace, or a process of the pod holds it; try again once that namespace is gone",
        ),
    ];
    for (error, code, text) in table {
        assert_eq!((error.code(), error.to_string().as_str()), (code, text));
    }
}
