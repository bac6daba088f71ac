//! A method of this program, in a pair of processes of its own.

use super::{Messages, serve};
use crate::cell::{Carrier, Method, Pattern, Wait};
use crate::error::{BenchError, Result};
use crate::run::Peer;
use crate::sending::SenderSide;
use std::ffi::OsString;

struct Own<'a> {
    peer: &'a Peer,
    method: Method,
    sending: Option<SenderSide<'a>>,
}

/// Is the program of one method. `again`: the arguments with which this program is the receiver.
pub(crate) fn own(method: Method, again: &[OsString]) -> Result<()> {
    if method.carrier() != Carrier::Own {
        return Err(BenchError::Usage(format!("{} is no method of this program", method.name())));
    }
    let peer = Peer::start(again, &[Wait::Sleep], false)?;
    let about = concat!("pageferry ", env!("CARGO_PKG_VERSION"));
    serve(about, &mut Own { peer: &peer, method, sending: None })
}

impl Messages for Own<'_> {
    fn open(&mut self, bytes: usize) -> core::result::Result<(), String> {
        let lines: Vec<_> = self.method.channel().into_iter().collect();
        let opened = SenderSide::open(&self.peer.link, &self.peer.child, bytes, Wait::Sleep, false, &lines);
        let (sending, missing) = opened.map_err(|error| error.to_string())?;
        if let Some((_, why)) = missing.into_iter().next() {
            return Err(why);
        }
        self.sending = Some(sending);
        Ok(())
    }

    fn send(
        &mut self,
        pattern: Pattern,
        warm: u32,
        rounds: u32,
        check: bool,
    ) -> core::result::Result<f64, String> {
        let sending = self.sending.as_mut().ok_or("nothing is open")?;
        let sent = if check {
            sending.verify(self.method, pattern).map(|()| 0.0)
        } else {
            let max = sending.max_rounds(self.method).saturating_sub(warm).max(1);
            sending.measure(self.method, pattern, warm, rounds.min(max))
        };
        sent.map_err(|error| error.to_string())
    }

    fn close(&mut self) -> core::result::Result<(), String> {
        self.sending.take().map_or(Ok(()), |sending| sending.close().map_err(|error| error.to_string()))
    }
}
