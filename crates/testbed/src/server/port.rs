//! Free ports for servers whose port must be chosen before they start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;

use anyhow::{Result, bail};
use parking_lot::Mutex;

use crate::server::process::Process;

/// Ports below those that Linux uses for connections (from 32768), so that no client takes a free one.
const PORTS: Range<u16> = 10_000..30_000;
/// Maximum number of ports that one call tries.
const MAX_PORT_ATTEMPTS: usize = 100;
/// Maximum number of starts at another port after another process took the port.
pub(crate) const MAX_START_ATTEMPTS: usize = 5;

/// Ports that this process handed out, reserved for its lifetime, since a server takes seconds to start.
static RESERVED_PORTS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// Returns an unused address of this machine, also for a server that is started there again. No process gets it
/// from this function a second time while this one lives.
///
/// # Errors
/// No free port is found.
pub fn free_address() -> Result<SocketAddr> {
    for _ in 0..MAX_PORT_ATTEMPTS {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(PORTS)));
        if let Some(claim) = claim(address) {
            RESERVED_PORTS.lock().push(claim);
            return Ok(address);
        }
    }
    bail!("no free port in {PORTS:?} after {MAX_PORT_ATTEMPTS} attempts")
}

/// Reserves a port for a TCP server by binding it for UDP, which is in no server's way and ends with the process.
fn claim(address: SocketAddr) -> Option<UdpSocket> {
    let claim = UdpSocket::bind(address).ok()?;
    TcpListener::bind(address).is_ok().then_some(claim)
}

/// Reports whether a process ended because another one has its port.
pub(crate) fn has_lost_port(process: &Process) -> bool {
    process.exited().is_some() && process.log_end(30).contains("address already in use")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_returned_once_even_without_a_listener() {
        let address = free_address().unwrap();
        assert!(claim(address).is_none(), "{address}");
        assert!(TcpListener::bind(address).is_ok(), "its server can have it");
    }
}
