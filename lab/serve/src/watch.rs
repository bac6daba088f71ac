//! Which real sources have news: `epoll`, edge-triggered.
//!
//! A change is told once, whether it can be made use of at once or not. So a source that nobody takes from now (clients
//! behind a full table, bytes for a full buffer, a connection that has failed) does not end every wait as soon as it
//! begins: modelled time goes on, and with it all timers.
//!
//! # What can fail
//! Making it, and adding to it: for want of descriptors or memory of the host.

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::time::Duration;

/// Changes that are told at a time.
const AT_A_TIME: usize = 64;

/// Sources whose changes are told.
pub(super) struct Watch {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

/// What has changed for a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct News {
    /// The number that the source was added by.
    pub(super) source: u64,
    /// There may be bytes, a client or an end.
    pub(super) readable: bool,
    /// There may be room.
    pub(super) writable: bool,
    /// It has failed.
    pub(super) failed: bool,
}

impl Watch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// The host has no descriptors or memory left.
    pub(super) fn new() -> io::Result<Watch> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Watch { epoll, events: Vec::with_capacity(AT_A_TIME) })
    }

    /// Watches a source from now on, until it is closed.
    ///
    /// # Errors
    /// The host has no memory left.
    pub(super) fn add(&self, source: impl AsFd, number: u64) -> io::Result<()> {
        use epoll::EventFlags as Flags;
        let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(number), flags)?)
    }

    /// Waits for changes, at most so long; a signal ends the wait, too.
    pub(super) fn wait(&mut self, max: Duration) -> Vec<News> {
        use epoll::EventFlags as Flags;
        let timeout = Timespec { tv_sec: max.as_secs() as i64, tv_nsec: max.subsec_nanos().into() };
        // By `poll`, which waits for less than a millisecond on any kernel.
        let ready = poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&timeout));
        if ready.unwrap_or(0) == 0 {
            return Vec::new();
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.events.clear();
        if epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&at_once)).is_err() {
            return Vec::new();
        }
        let news = |event: &epoll::Event| {
            let (flags, data) = (event.flags, event.data);
            News {
                source: data.u64(),
                readable: flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR),
                writable: flags.intersects(Flags::OUT | Flags::HUP | Flags::ERR),
                failed: flags.contains(Flags::ERR),
            }
        };
        self.events.iter().map(news).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    const SOON: Duration = Duration::from_secs(120);
    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_change_is_told_once_whether_it_is_made_use_of_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut watch = Watch::new().expect("made");
        watch.add(&listener, 7).expect("added");
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let told = watch.wait(SOON);
        assert!(matches!(told[..], [News { source: 7, readable: true, failed: false, .. }]), "{told:?}");
        // It was not accepted: no news.
        assert_eq!(watch.wait(NOW), []);
        let (mut taken, _) = listener.accept().expect("it waits");
        watch.add(&taken, 8).expect("added");
        client.write_all(b"one").expect("sent");
        let told = watch.wait(SOON);
        assert!(told.iter().all(|news| news.source == 8 && news.writable), "{told:?}");
        while !watch.wait(Duration::from_millis(50)).is_empty() {}
        // What is there already is not told again, what comes is.
        assert_eq!(watch.wait(NOW), []);
        client.write_all(b"two").expect("sent");
        assert!(watch.wait(SOON)[0].readable);
        taken.read_exact(&mut [0; 6]).expect("both");
        drop(client);
        assert!(watch.wait(SOON)[0].readable);
        assert_eq!(watch.wait(NOW), []);
    }
}
