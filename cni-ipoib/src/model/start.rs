// SPDX-License-Identifier: Apache-2.0
use common::cni::dispatch::Call;
use common::cni::{Args, Attachment, Conf, Reader};
use common::netlink::{
    AddrGenMode, HwAddress, IpoibMode, Link, LinkInfo, LinkLayer, OperState, PacketLimits,
};
use common::rdma::Pkey;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The GUID of the only port, as sysfs writes it.
pub(crate) const GUID: &str = "248a:0703:00b4:0c5e";

const IB_ADDRESS: &str = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";

/// A link that is up and has carrier; `address` in colon form, or empty.
pub(crate) fn link(layer: LinkLayer, index: u32, name: &str, address: &str) -> Link {
    Link {
        index,
        name: name.to_owned(),
        altnames: Vec::new(),
        layer,
        address: address.parse().unwrap_or_default(),
        broadcast: HwAddress::default(),
        perm_address: None,
        mtu: 1500,
        max_mtu: None,
        parent: None,
        parent_netnsid: None,
        master: None,
        up: true,
        carrier: true,
        oper_state: OperState::Up,
        alias: None,
        group: 0,
        kind: None,
        info: LinkInfo::Other,
        device: None,
        phys_port_name: None,
        addr_gen_mode: Some(AddrGenMode::Eui64),
        flags: 0x1000,
        tx_queue: 1000,
        link_mode: 0,
        limits: PacketLimits {
            gso_max_size: Some(65536),
            ..PacketLimits::default()
        },
        xdp: Vec::new(),
    }
}

/// An `IPoIB` link in datagram mode on the port of [`GUID`].
pub(crate) fn ipoib(index: u32, name: &str, pkey: u16) -> Link {
    Link {
        mtu: 2044,
        kind: Some("ipoib".to_owned()),
        info: LinkInfo::Ipoib {
            pkey: Pkey(pkey),
            mode: IpoibMode::Datagram,
            umcast: false,
        },
        ..link(LinkLayer::Infiniband, index, name, IB_ADDRESS)
    }
}

pub(crate) fn ethernet(index: u32, name: &str) -> Link {
    link(LinkLayer::Ethernet, index, name, "02:00:00:00:0a:0b")
}

pub(crate) fn of_kind(kind: &str, link: Link) -> Link {
    Link {
        kind: Some(kind.to_owned()),
        ..link
    }
}

/// A bond of InfiniBand ports: their link layer, but no `IPoIB` link.
pub(crate) fn bond(index: u32, name: &str) -> Link {
    of_kind("bond", link(LinkLayer::Infiniband, index, name, IB_ADDRESS))
}

pub(crate) fn attachment(container: &str) -> Attachment {
    Attachment {
        container_id: container.parse().unwrap(),
        ifname: "net1".parse().unwrap(),
    }
}

/// A call with these keys on top of version, name and type.
pub(crate) fn call(keys: Value) -> Call {
    call_with("cni-ipoib", keys, "")
}

/// A call under the name `program` with `args` for `CNI_ARGS`.
pub(crate) fn call_with(program: &str, keys: Value, args: &str) -> Call {
    let mut conf = json!({"cniVersion": "1.1.0", "name": "fabric", "type": program});
    let Value::Object(keys) = keys else {
        panic!("{keys} is no object")
    };
    conf.as_object_mut().unwrap().extend(keys);
    Call {
        program: program.to_owned(),
        conf: Conf::read(conf.to_string().as_bytes()).unwrap(),
        args: Args::parse(args).unwrap(),
        args_text: args.to_owned(),
        path: vec![PathBuf::from("/nowhere")],
        netns_override: false,
        reader: Reader::PRESENT,
    }
}
