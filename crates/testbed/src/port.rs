//! Ports for servers that are told theirs before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

use anyhow::{Result, bail};

use crate::process::Process;

/// Below those that Linux gives to connections (from 32768): one that is free now is not lost to somebody's client.
const PORTS: Range<u16> = 10_000..30_000;
/// How many ports are looked at before giving up.
const LOOKS: usize = 100;
/// How often a server is started at another port when somebody else was faster.
pub(crate) const TRIES: usize = 5;

/// An address of this machine at which nobody listens, for a server of a test or one that comes back to it.
///
/// # Errors
/// None is found.
pub fn free_address() -> Result<SocketAddr> {
    for _ in 0..LOOKS {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS)));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free port in {PORTS:?} after {LOOKS} looks")
}

/// Whether a process ended because somebody else took its port.
pub(crate) fn is_lost(process: &Process) -> bool {
    process.exited().is_some() && process.log_end(30).contains("address already in use")
}
