//! Channels, and how two processes find each other.

use crate::border::{self, Out, Wait, with_socket};
use crate::config::{self, pf_config};
use crate::ends::{End, ReceiverEnd, SenderEnd};
use crate::fault::{Fault, call};
use crate::handles::Tables;
use crate::opaque::{pf_listener, pf_receiver, pf_sender};
use crate::table::{Handle, Kind};
use core::ffi::{c_char, c_int, c_void};
use pageferry::{Channel, Listener};
use std::os::fd::{AsFd as _, AsRawFd as _};

/// The version of the library that the program runs with: 65536 * major + 256 * minor + patch. It never
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn pf_version() -> u32 {
    let number = |text: &str| text.parse::<u32>().unwrap_or(0);
    number(env!("CARGO_PKG_VERSION_MAJOR")) << 16
        | number(env!("CARGO_PKG_VERSION_MINOR")) << 8
        | number(env!("CARGO_PKG_VERSION_PATCH"))
}

/// How many handles of this process are not freed: to find what a program has lost. 0 in a child that `fork`
/// has just made. It never fails.
#[unsafe(no_mangle)]
pub extern "C" fn pf_open_handles() -> usize {
    let mut live = 0;
    call(|| {
        live = Tables::get().live();
        Ok(())
    });
    live
}

/// Both ends of a channel in this process, for two of its threads. The ends trust each other. `config` may be
/// NULL: the defaults.
///
/// PF_EUSAGE: a value of the configuration. PF_EHOST: memory or descriptors are not to be had.
///
/// # Safety
/// `config` is NULL or has as many bytes as it says; the other addresses are NULL or of a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_channel_pair(
    config: *const pf_config,
    sender: *mut *mut pf_sender,
    receiver: *mut *mut pf_receiver,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut to_sender = unsafe { Out::handle(sender, "sender") }?;
        // SAFETY: as above.
        let mut to_receiver = unsafe { Out::handle(receiver, "receiver") }?;
        // SAFETY: as above.
        let config = unsafe { config::read(config) }?;
        let tables = Tables::get();
        let (for_sender, for_receiver) = (tables.senders.reserve()?, tables.receivers.reserve()?);
        let (sender, receiver) = Channel::pair(config)?;
        to_sender.set_handle(for_sender.fill(End::Trusting(sender)));
        to_receiver.set_handle(for_receiver.fill(ReceiverEnd::new(End::Trusting(receiver))));
        Ok(())
    })
}

/// Two sockets that are each other's peer: `fds[0]` for one process, `fds[1]` for another. One of them
/// becomes a sender, the other a receiver. Both are closed by `exec`: clear FD_CLOEXEC of the one that a new
/// program shall have. The caller closes them, unless a call has taken them.
///
/// PF_EHOST: no descriptors are to be had.
///
/// # Safety
/// `fds` is NULL or has room for two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_channel_sockets(fds: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(fds.cast::<[c_int; 2]>(), "fds", [-1, -1]) }?;
        let (one, other) = Channel::sockets()?;
        out.set([border::give_fd(one), border::give_fd(other)]);
        Ok(())
    })
}

/// A socket to whoever listens at `path`: for the call that makes an end of it. Whether this side is the
/// sender or the receiver, both must know. The caller closes it, unless a call has taken it.
///
/// PF_EHOST: nobody listens there, or the caller may not: see pf_last_errno().
///
/// # Safety
/// `path` is NULL or a text; `fd` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_channel_connect(path: *const c_char, fd: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(fd, "fd", -1) }?;
        // SAFETY: as above.
        let path = unsafe { border::path(path, "path") }?;
        out.set(border::give_fd(Channel::connect(path)?));
        Ok(())
    })
}

/// Listens at `path`. The path is a name for the time of connecting and nothing more. What a killed process
/// has left there is replaced. Whoever may write to the socket file may connect; its mode is by the umask.
///
/// PF_EHOST: somebody listens there already (EADDRINUSE), or the path cannot be: see pf_last_errno().
///
/// # Safety
/// `path` is NULL or a text; `listener` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_listener_bind(path: *const c_char, listener: *mut *mut pf_listener) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::handle(listener, "listener") }?;
        // SAFETY: as above.
        let path = unsafe { border::path(path, "path") }?;
        let room = Tables::get().listeners.reserve()?;
        out.set_handle(room.fill(Listener::bind(path)?));
        Ok(())
    })
}

/// Waits for the next connection, `timeout_ms` at most (or PF_WAIT, PF_NOWAIT): a socket for the call that
/// makes an end of it. The caller closes it, unless a call has taken it.
///
/// PF_EWOULDBLOCK, PF_ETIMEDOUT: nobody has connected.
///
/// # Safety
/// `fd` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_listener_accept(
    listener: *mut pf_listener,
    timeout_ms: c_int,
    fd: *mut c_int,
) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(fd, "fd", -1) }?;
        let wait = Wait::from_ms(timeout_ms)?;
        Tables::get().listeners.with(Handle::new(listener.cast(), "listener"), |listener| {
            let accepted = match wait {
                Wait::Forever => listener.accept(),
                _ => listener.accept_timeout(wait.at_most()),
            };
            out.set(border::give_fd(accepted.map_err(|error| wait.fault(error))?));
            Ok(())
        })
    })
}

/// Ends listening, and removes the path.
#[unsafe(no_mangle)]
pub extern "C" fn pf_listener_free(listener: *mut pf_listener) -> c_int {
    call(|| Tables::get().listeners.free(Handle::new(listener.cast(), "listener")))
}

/// The sending end, over a socket whose other end becomes the receiver. Waits for it, as long as the
/// configuration's `handshake_ms` says for each step. The receiver may be hostile: memory is neither donated
/// to it nor shared with it. `config` may be NULL: the defaults.
///
/// Where it succeeds the socket is the library's; otherwise it is the caller's, who closes it.
///
/// PF_EPEER_*: the receiver is gone, refuses, or does not fit. PF_ETIMEDOUT: it does not answer. PF_EUSAGE:
/// `fd` is no SOCK_SEQPACKET socket of the Unix domain, or a value of the configuration.
///
/// # Safety
/// `config` is NULL or has as many bytes as it says; `sender` is NULL or a place for a handle; nobody else
/// uses `fd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_open(
    fd: c_int,
    config: *const pf_config,
    sender: *mut *mut pf_sender,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        open_sender(fd, config, sender, |socket, config| Channel::sender(socket, config).map(End::Guarded))
    })
}

/// As pf_sender_open(), to a receiver that this process trusts as itself: memory can be donated to it and
/// shared with it.
///
/// It must run this library, or follow its protocol, and must not write to memory that it has given back.
/// Where it does so all the same, what this process reads there is undefined.
///
/// # Safety
/// As for [`pf_sender_open`]; and the receiver is what this says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_sender_open_trusted(
    fd: c_int,
    config: *const pf_config,
    sender: *mut *mut pf_sender,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        open_sender(fd, config, sender, |socket, config| {
            Channel::trusted_sender(socket, config).map(End::Trusting)
        })
    })
}

/// # Safety
/// As for [`pf_sender_open`].
unsafe fn open_sender(
    fd: c_int,
    config: *const pf_config,
    sender: *mut *mut pf_sender,
    open: impl FnOnce(rustix::fd::OwnedFd, pageferry::Config) -> Result<SenderEnd, pageferry::Error>,
) -> Result<(), Fault> {
    // SAFETY: by the caller's promise.
    let mut out = unsafe { Out::handle(sender, "sender") }?;
    // SAFETY: as above.
    let config = unsafe { config::read(config) }?;
    let room = Tables::get().senders.reserve()?;
    // SAFETY: as above.
    let sender = unsafe { with_socket(fd, |socket| open(socket, config)) }?;
    out.set_handle(room.fill(sender));
    Ok(())
}

/// The receiving end, over a socket whose other end becomes the sender. Waits for it, as long as the
/// configuration's `handshake_ms` says for each step. The sender may be hostile: its messages are copies or
/// sealed memory, which nobody can change after they were checked. `config` may be NULL: the defaults.
///
/// Where it succeeds the socket is the library's; otherwise it is the caller's, who closes it.
///
/// PF_EPEER_*: the sender is gone, refuses, or does not fit. PF_ETIMEDOUT: it does not answer. PF_EUSAGE:
/// `fd` is no SOCK_SEQPACKET socket of the Unix domain, or a value of the configuration.
///
/// # Safety
/// `config` is NULL or has as many bytes as it says; `receiver` is NULL or a place for a handle; nobody else
/// uses `fd`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_receiver_open(
    fd: c_int,
    config: *const pf_config,
    receiver: *mut *mut pf_receiver,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        open_receiver(fd, config, receiver, |socket, config| {
            Channel::receiver(socket, config).map(|end| ReceiverEnd::new(End::Guarded(end)))
        })
    })
}

/// As pf_receiver_open(), from a sender that this process trusts as itself: its messages are read where they
/// are.
///
/// It must run this library, or follow its protocol, and must keep no other way to write to the memory that
/// it lends. Where it does so all the same, what this process reads there is undefined.
///
/// # Safety
/// As for [`pf_receiver_open`]; and the sender is what this says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_receiver_open_trusted(
    fd: c_int,
    config: *const pf_config,
    receiver: *mut *mut pf_receiver,
) -> c_int {
    // SAFETY: by the caller's promise.
    call(|| unsafe {
        open_receiver(fd, config, receiver, |socket, config| {
            Channel::trusted_receiver(socket, config).map(|end| ReceiverEnd::new(End::Trusting(end)))
        })
    })
}

/// # Safety
/// As for [`pf_receiver_open`].
unsafe fn open_receiver(
    fd: c_int,
    config: *const pf_config,
    receiver: *mut *mut pf_receiver,
    open: impl FnOnce(rustix::fd::OwnedFd, pageferry::Config) -> Result<ReceiverEnd, pageferry::Error>,
) -> Result<(), Fault> {
    // SAFETY: by the caller's promise.
    let mut out = unsafe { Out::handle(receiver, "receiver") }?;
    // SAFETY: as above.
    let config = unsafe { config::read(config) }?;
    let room = Tables::get().receivers.reserve()?;
    // SAFETY: as above.
    let receiver = unsafe { with_socket(fd, |socket| open(socket, config)) }?;
    out.set_handle(room.fill(receiver));
    Ok(())
}

/// The descriptor of a pf_sender, a pf_receiver or a pf_listener, for `poll` and `epoll`: it becomes
/// readable. Use it for nothing else, and do not close it.
///
/// *Of a receiver*: after pf_recv() has said PF_EWOULDBLOCK, when a message comes or the sender is gone. *Of
/// a sender*: after pf_sender_buffer() has said PF_EWOULDBLOCK, when something has come back or the receiver
/// is gone. *Of a listener*: when somebody has connected. Then call again, with PF_NOWAIT; it may still say
/// PF_EWOULDBLOCK. Without that answer before it, a poll may sleep beside a message that is there.
///
/// # Safety
/// `fd` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pf_fd(handle: *const c_void, fd: *mut c_int) -> c_int {
    call(|| {
        // SAFETY: by the caller's promise.
        let mut out = unsafe { Out::new(fd, "fd", -1) }?;
        let (handle, tables) = (Handle::new(handle, "handle"), Tables::get());
        let fd = match handle.kind()? {
            Kind::Receiver => tables.receivers.with(handle, |end| Ok(end.fd()))?,
            Kind::Listener => tables.listeners.with(handle, |listener| Ok(listener.as_fd().as_raw_fd()))?,
            // The table says what else it is.
            _ => tables.senders.with(handle, |end| Ok(end.fd()))?,
        };
        out.set(fd);
        Ok(())
    })
}
