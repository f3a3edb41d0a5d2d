// SPDX-License-Identifier: Apache-2.0
//! Turns environment and stdin into one verb of a [`Plugin`], and the plugin's answer into one JSON document.
//!
//! Invariant: stdout gets exactly one document, or nothing after a successful DEL, CHECK, STATUS or GC. The
//! exit status is 0 only for success. A panic is answered like any other error.

use super::args::Args;
use super::conf::{Conf, GcConf, read_object};
use super::env::Env;
use super::error::{Code, Error};
use super::id::Attachment;
use super::reader::Reader;
use super::result::CniResult;
use super::version::Version;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// A CNI plugin: one method per verb.
///
/// # Guarantees of the caller
/// `call.conf` has a known version and a valid network name. `attachment` is valid. For ADD and CHECK the
/// path of the namespace is not empty, but the file may not exist. CHECK needs version 0.4.0, GC and STATUS
/// need 1.1.0.
pub trait Plugin {
    /// One line that describes the plugin to a person who starts it by hand.
    fn about(&self) -> &str;
    /// Attaches a container. May be repeated.
    fn add(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<CniResult, Error>;
    /// Removes what ADD made, including the parts of an unfinished ADD. Succeeds if nothing exists. The
    /// namespace may be gone.
    fn del(&self, call: &Call, attachment: &Attachment, netns: Option<&Path>) -> Result<(), Error>;
    /// Fails unless the attachment is still as ADD left it.
    fn check(&self, call: &Call, attachment: &Attachment, netns: &Path) -> Result<(), Error>;
    /// Removes every attachment of this network that is not listed as valid.
    fn gc(&self, call: &Call, gc: &GcConf) -> Result<(), Error>;
    /// Fails if ADD could not succeed now.
    fn status(&self, call: &Call) -> Result<(), Error>;
}

/// The input of every verb.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name under which the binary was called, without its directory.
    pub program: String,
    /// The network configuration.
    pub conf: Conf,
    /// `CNI_ARGS`, read.
    pub args: Args,
    /// `CNI_ARGS` unparsed, for delegates.
    pub args_text: String,
    /// `CNI_PATH`: the directories of delegates.
    pub path: Vec<PathBuf>,
    /// Whether `CNI_NETNS_OVERRIDE` allows the plugin's own namespace as the container's (cni `pkg/skel`).
    pub netns_override: bool,
    /// The reader of the result.
    pub reader: Reader,
}

/// A process' streams.
pub struct Streams<I, O, E> {
    /// The network configuration.
    pub stdin: I,
    /// The answer.
    pub stdout: O,
    /// Messages for people.
    pub stderr: E,
    /// The reader of `stdout`.
    pub reader: Reader,
}

/// Serves one call and returns the exit status: 0 or 1.
pub fn dispatch(
    plugin: &impl Plugin,
    program: &str,
    env: &Env,
    mut streams: Streams<impl Read, impl Write, impl Write>,
) -> u8 {
    let mut version = Version::LATEST;
    let answer = catch_unwind(AssertUnwindSafe(|| {
        serve(plugin, program, env, &mut streams, &mut version)
    }));
    let answer = answer.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Error::new(
            Code::INTERNAL,
            format!("bug in {program}: {text}; please report it with the log"),
        ))
    });
    let (status, document) = match answer {
        Ok(document) => (0, document),
        Err(error) => {
            tracing::debug!(code = error.code.0, error = %error.msg, details = error.details, "the call failed");
            (1, Some(error.to_json(version)))
        }
    };
    let Some(document) = document else { return status };
    match writeln!(streams.stdout, "{document}").and_then(|()| streams.stdout.flush()) {
        Ok(()) => status,
        Err(error) => {
            tracing::error!(%error, %document, "cannot write the answer to stdout");
            1
        }
    }
}

/// Serves one call and returns the document for stdout. Sets `version` as soon as it is known, for errors.
fn serve(
    plugin: &impl Plugin,
    program: &str,
    env: &Env,
    streams: &mut Streams<impl Read, impl Write, impl Write>,
    version: &mut Version,
) -> Result<Option<Value>, Error> {
    let Some(command) = env.get("CNI_COMMAND")? else {
        let versions = Version::all_str().join(", ");
        // A closed stderr is ignored: the same error follows on stdout.
        let _ = writeln!(
            streams.stderr,
            "{}\nCNI protocol versions supported: {versions}",
            plugin.about()
        );
        return Err(Error::new(
            Code::INVALID_ENVIRONMENT,
            format!(
                "CNI_COMMAND is not set; {program} is called by a container runtime, or by hand with cnitool"
            ),
        ));
    };
    if command == "VERSION" {
        return Ok(Some(version_answer(&mut streams.stdin)));
    }
    let required: &[&str] = match command {
        "ADD" | "CHECK" => &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"],
        "DEL" => &["CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"],
        "GC" | "STATUS" => &["CNI_PATH"],
        other => {
            return Err(Error::new(
                Code::INVALID_ENVIRONMENT,
                format!("CNI_COMMAND is {other:?}; use ADD, DEL, CHECK, GC, STATUS or VERSION"),
            ));
        }
    };
    env.require(required)?;
    let del = command == "DEL";
    let conf = match read_conf(&mut streams.stdin, del, version) {
        Err(error) if del && error.code == Code::INVALID_CONFIG => return Ok(nothing_to_undo(&error)),
        conf => conf?,
    };
    let (args, args_text) = match read_args(env) {
        Err(error) if del => {
            tracing::warn!(error = %error.msg, "ignored CNI_ARGS: DEL does not need them");
            (Args::default(), String::new())
        }
        args => args?,
    };
    let call = Call {
        program: program.to_owned(),
        conf,
        args,
        args_text,
        path: env.path(),
        netns_override: env
            .get("CNI_NETNS_OVERRIDE")?
            .is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true")),
        reader: streams.reader,
    };
    run(plugin, command, env, &call)
}

fn run(plugin: &impl Plugin, command: &str, env: &Env, call: &Call) -> Result<Option<Value>, Error> {
    let netns = env.get("CNI_NETNS")?.map(Path::new);
    let given = || match netns {
        None => Err(Error::new(Code::INVALID_ENVIRONMENT, "CNI_NETNS is not set")),
        Some(netns) if netns.is_relative() => Err(Error::new(
            Code::INVALID_ENVIRONMENT,
            format!(
                "CNI_NETNS {} is relative, and DEL may run in another directory; want the absolute path of the container's network namespace",
                netns.display()
            ),
        )),
        Some(netns) => Ok(netns),
    };
    match command {
        "ADD" => {
            let result = plugin.add(call, &env.attachment()?, given()?)?;
            return Ok(Some(result.to_json(call.conf.version)));
        }
        "DEL" => match env.attachment() {
            Err(error) => return Ok(nothing_to_undo(&error)),
            Ok(attachment) => plugin.del(call, &attachment, netns)?,
        },
        "CHECK" => {
            require_version(call, command, Version::V0_4_0)?;
            plugin.check(call, &env.attachment()?, given()?)?;
        }
        "GC" => {
            require_version(call, command, Version::V1_1_0)?;
            plugin.gc(call, &call.conf.gc()?)?;
        }
        _ => {
            require_version(call, command, Version::V1_1_0)?;
            plugin.status(call)?;
        }
    }
    Ok(None)
}

/// Reads `CNI_ARGS`; returns it parsed and unparsed.
fn read_args(env: &Env) -> Result<(Args, String), Error> {
    let text = env.get("CNI_ARGS")?.unwrap_or_default();
    Ok((Args::parse(text)?, text.to_owned()))
}

/// The answer to DEL for an invalid name of a network, a container or an interface. ADD refuses such a name,
/// so nothing exists. After an error the runtime would repeat DEL and keep the pod, whose names cannot be
/// corrected.
fn nothing_to_undo(error: &Error) -> Option<Value> {
    tracing::warn!(error = %error.msg, "nothing to undo: ADD refuses such a call");
    None
}

/// Reads the configuration. Sets `version` even if the rest of the configuration is not valid.
///
/// DEL reads an unknown `cniVersion`, or one that is not a text, as our newest version: DEL has no result
/// whose shape could be wrong, and a newer plugin may have attached the pod.
///
/// # Errors
/// As [`Conf::read`]. For DEL, a name that is not a text is [`Code::INVALID_CONFIG`], like a text that is not
/// a valid name.
fn read_conf(stdin: impl Read, del: bool, version: &mut Version) -> Result<Conf, Error> {
    let mut object = read_object(stdin)?;
    if del {
        let unknown = |written: &Value| written.as_str().is_none_or(|text| Version::parse(text).is_none());
        let version = object.get("cniVersion").filter(|written| !written.is_null());
        if version.is_some_and(unknown) {
            object.insert("cniVersion".to_owned(), json!(Version::LATEST.as_str()));
        }
        let name = object
            .get("name")
            .filter(|name| !name.is_null() && !name.is_string());
        if let Some(name) = name {
            return Err(Error::new(
                Code::INVALID_CONFIG,
                format!("network name {name} is not a text"),
            ));
        }
    }
    if let Some(known) = object
        .get("cniVersion")
        .and_then(Value::as_str)
        .and_then(Version::parse)
    {
        *version = known;
    }
    let conf = Conf::from_object(object)?;
    *version = conf.version;
    Ok(conf)
}

fn require_version(call: &Call, command: &str, since: Version) -> Result<(), Error> {
    if call.conf.version >= since {
        return Ok(());
    }
    Err(Error::new(
        Code::INCOMPATIBLE_VERSION,
        format!(
            "cniVersion {} has no {command}; it exists since {since}",
            call.conf.version
        ),
    ))
}

/// The answer to VERSION. It repeats the caller's `cniVersion`, known or not, and defaults to our newest.
fn version_answer(stdin: impl Read) -> Value {
    let asked = read_object(stdin)
        .ok()
        .and_then(|o| o.get("cniVersion").and_then(Value::as_str).map(str::to_owned));
    json!({
        "cniVersion": asked.unwrap_or_else(|| Version::LATEST.to_string()),
        "supportedVersions": Version::all_str(),
    })
}

#[cfg(test)]
mod tests;
