// SPDX-License-Identifier: Apache-2.0
//! The network configuration on stdin: the part that CNI itself defines. Plugins read the rest from [`Conf::object`].

use super::error::{Code, Error, causes};
use super::id::{Attachment, is_name};
use super::plain::decode;
use super::result::CniResult;
use super::version::Version;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::io::Read;

/// The largest configuration that is read. Kubernetes limits objects to 1.5 MiB, and so a network
/// configuration.
pub const STDIN_MAX: u64 = 4 << 20;

/// A configuration whose CNI part is valid.
#[derive(Clone, Debug)]
pub struct Conf {
    /// `cniVersion`: every answer has this shape.
    pub version: Version,
    /// `name` of the network.
    pub network: String,
    /// The whole document, for the plugin to read its own keys from and for delegates to receive.
    pub object: Map<String, Value>,
}

/// An attachment as a runtime lists it for GC.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "containerID")]
    container_id: String,
    ifname: String,
}

/// The part of the configuration that only GC gets.
#[derive(Clone, Debug)]
pub struct GcConf {
    /// `cni.dev/valid-attachments`: GC removes every other attachment.
    pub valid: Vec<Attachment>,
}

impl Conf {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`Code::IO`] when stdin cannot be read; [`Code::DECODE`] when it is not a JSON object, or too large;
    /// [`Code::INCOMPATIBLE_VERSION`] and [`Code::INVALID_CONFIG`] when the CNI part is not valid.
    pub fn read(stdin: impl Read) -> Result<Self, Error> {
        Self::from_object(read_object(stdin)?)
    }

    pub(super) fn from_object(object: Map<String, Value>) -> Result<Self, Error> {
        let version = supported_version(text(&object, "cniVersion")?.unwrap_or_default())?;
        let network = text(&object, "name")?.unwrap_or_default().to_owned();
        if !is_name(&network) {
            return Err(Error::new(
                Code::INVALID_CONFIG,
                format!(
                    "network name {network:?} is not valid: set \"name\" to letters, digits, '.', '_' and '-', beginning with a letter or digit"
                ),
            ));
        }
        Ok(Self {
            version,
            network,
            object,
        })
    }

    /// Reads the plugin's own view of the configuration.
    ///
    /// # Errors
    /// [`Code::DECODE`] with the JSON path of the first value that has a wrong type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Error> {
        decode(&Value::Object(self.object.clone()))
    }

    /// The result of the previous plugin, or of ADD. `None` if the runtime sent none.
    pub fn prev_result(&self) -> Result<Option<CniResult>, Error> {
        match self.object.get("prevResult") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => CniResult::chained(value)
                .map(Some)
                .map_err(|e| e.within("prevResult")),
        }
    }

    /// The list of attachments that GC must keep.
    ///
    /// A null list is an empty list: libcni marshals the nil slice of a network without running pods as null
    /// (`GCNetworkList` of `libcni/api.go`), and CRI-O sends that when it starts.
    ///
    /// # Errors
    /// [`Code::DECODE`] if the key is absent: reading that as an empty list would remove every attachment.
    pub(super) fn gc(&self) -> Result<GcConf, Error> {
        let Some(list) = self.object.get("cni.dev/valid-attachments") else {
            return Err(Error::new(
                Code::DECODE,
                "GC needs \"cni.dev/valid-attachments\"; without it nothing is removed",
            ));
        };
        let listed: Option<Vec<Listed>> = decode(list).map_err(|e| e.within("cni.dev/valid-attachments"))?;
        Ok(GcConf {
            valid: listed.into_iter().flatten().filter_map(Listed::checked).collect(),
        })
    }
}

impl Listed {
    /// Returns the attachment, or `None` if ADD refuses its names. Such an attachment cannot exist, so
    /// leaving it out of the list removes nothing.
    fn checked(self) -> Option<Attachment> {
        let read = || -> Result<Attachment, Error> {
            Ok(Attachment {
                container_id: self.container_id.parse()?,
                ifname: self.ifname.parse()?,
            })
        };
        read()
            .inspect_err(|error| tracing::warn!(%error, "valid attachment ignored: ADD refuses its name"))
            .ok()
    }
}

fn supported_version(text: &str) -> Result<Version, Error> {
    Version::parse(text).ok_or_else(|| {
        let supported = Version::all_str().join(", ");
        Error::new(
            Code::INCOMPATIBLE_VERSION,
            format!("cniVersion {text:?} is not supported; use one of {supported}"),
        )
    })
}

fn text<'o>(object: &'o Map<String, Value>, key: &str) -> Result<Option<&'o str>, Error> {
    match object.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Error::new(
            Code::DECODE,
            format!("network configuration: {key} is {other}, want a text"),
        )),
    }
}

/// Reads one JSON object of at most [`STDIN_MAX`] bytes.
pub(super) fn read_object(stdin: impl Read) -> Result<Map<String, Value>, Error> {
    let mut bytes = Vec::new();
    stdin
        .take(STDIN_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::caused(Code::IO, "cannot read the network configuration from stdin", &e))?;
    if bytes.len() as u64 > STDIN_MAX {
        return Err(Error::new(
            Code::DECODE,
            format!(
                "the network configuration on stdin is larger than {} MiB",
                STDIN_MAX >> 20
            ),
        ));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::new(
            Code::DECODE,
            "stdin is empty, want a network configuration in JSON",
        ));
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(Error::new(
            Code::DECODE,
            format!(
                "the network configuration on stdin is {}, want a JSON object",
                kind(&other)
            ),
        )),
        Err(e) => Err(Error::new(
            Code::DECODE,
            format!("the network configuration on stdin is not JSON: {}", causes(&e)),
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
