// SPDX-License-Identifier: Apache-2.0
//! Asks a link for the name of its driver (`ethtool -i`).
//!
//! Invariant: the request names a link in the namespace of the calling thread, and changes nothing. Source:
//! `ETHTOOL_GDRVINFO` in `include/uapi/linux/ethtool.h`. Netlink has no such request.

use nix::errno::Errno;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// `SIOCETHTOOL` of `include/uapi/linux/sockios.h`.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `ETHTOOL_GDRVINFO`.
const GET_DRIVER: u32 = 3;

/// `struct ethtool_drvinfo` as words of 4 bytes: the command, the driver's name, and fields that are not read
/// here.
type Answer = [u32; 49];

/// The position of the driver's name in the answer, in bytes.
const NAME: std::ops::Range<usize> = 4..36;

/// Returns the driver of the link `name`, e.g. `ib_ipoib`, or `mlx5_core[ib_ipoib]` where the HCA has a data
/// path of its own.
///
/// # Errors
/// No link has that name, or its driver does not support the request.
pub fn driver(name: &str) -> io::Result<String> {
    let mut answer: Answer = [0; 49];
    answer[0] = GET_DRIVER;
    ask(name, &mut answer)?;
    let bytes: Vec<u8> = answer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = bytes[NAME].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[expect(
    unsafe_code,
    reason = "neither std nor nix can ask a link for its driver, and netlink has no such request"
)]
fn ask(name: &str, answer: &mut Answer) -> io::Result<()> {
    // Any socket will do: the kernel only uses its namespace (`sock_do_ioctl`).
    let socket = UnixDatagram::unbound()?;
    // SAFETY: an `ifreq` is integers, arrays and a pointer; all zeros is a valid value of each.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let bytes = name.as_bytes();
    if bytes.len() >= request.ifr_name.len() || bytes.contains(&0) {
        return Err(Errno::ENODEV.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
    // SAFETY: the kernel writes one `ethtool_drvinfo` of 196 bytes, the size of `answer`, which outlives the call; the
    // name ends with a zero; the socket is open.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    Errno::result(asked).map(drop).map_err(io::Error::from)
}

#[cfg(test)]
mod tests;
