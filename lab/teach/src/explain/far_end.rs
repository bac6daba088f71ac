//! The host at the far end of the wire of a mechanism's machine: it sends pages from one port, and takes whatever is
//! sent to another.

use super::stage::{Stage, contents};
use pageferry_lab::LabError;
use pageferry_lab::run::{FAR_END, Testbed};
use pageferry_model::net::line::{Call, End, LineConfig, LineHost, Speech, Talker};
use std::cell::RefCell;
use std::net::SocketAddrV4;
use std::rc::Rc;

/// Where it sends [`PAGES`] of [`contents`] from; and where it takes what is sent.
pub(super) const SOURCE: SocketAddrV4 = SocketAddrV4::new(FAR_END, 19);
pub(super) const SINK: SocketAddrV4 = SocketAddrV4::new(FAR_END, 9);
/// Pages that it sends.
pub(super) const PAGES: usize = 8;

struct Host {
    heard: Rc<RefCell<Vec<u8>>>,
}

impl Talker for Host {
    fn accepts(&mut self, _: u64, port: u16) -> Option<Speech> {
        match port {
            port if port == SOURCE.port() => Some(Speech::of(contents(PAGES), true)),
            port if port == SINK.port() => Some(Speech::of(Vec::new(), false)),
            _ => None,
        }
    }
    fn calls(&mut self, _: u64, _: u64) -> Option<Call> {
        None
    }
    fn next_call_at(&mut self, _: u64) -> Option<u64> {
        None
    }
    fn hears(&mut self, _: u64, _: u64, _: u64, bytes: &[u8]) {
        self.heard.borrow_mut().extend(bytes);
    }
    fn ended(&mut self, _: u64, _: u64, _: End) {}
}

/// Puts it at the end of the machine's wire; frames are as large as the card takes them.
///
/// # Errors
/// A machine without a card, or a kernel without the protocols.
pub(super) fn attach(testbed: &mut Testbed, stage: &Stage) -> Result<(), LabError> {
    testbed.give_address(true)?;
    let mtu = testbed.machine().config.nic.as_ref().map_or(1500, |nic| nic.mtu_bytes.value);
    let config = LineConfig { ip: FAR_END, mtu_bytes: mtu as usize, ..LineConfig::default() };
    testbed.model().attach(Box::new(LineHost::new(config, Host { heard: stage.heard.clone() })));
    Ok(())
}
