//! The server: a program that owns a volume, and does what requests ask for.
//!
//! # What it holds
//! A [`Server`] is the volume, the buffers of its disk, and what is open: each open file has a number that is not used
//! again, and the place where it is read or written next.
//!
//! # Requests
//! One at a time, also where several threads are inside ([`Inside`]).
//!
//! # What can fail
//! A file system; the disk. A killed server does what it is told to nothing: its calls fail, and its makers are told of
//! its death whatever it answers.

use super::super::answer::Answer;
use super::super::inside::{Inside, Whole};
use super::buffers::{Buffers, clear, copy};
use super::service::FileService;
use super::words::{LAST_ENTRIES, LEADS_OFF, Request, entries_to_bytes, stat_word};
use alloc::boxed::Box;
use alloc::sync::Arc;
use litemap::LiteMap;
use pageferry_abi::SendMode;
use pageferry_abi::{Errno, OpenFlags};
use pageferry_core::fs::volume_work::{self, read_bytes, write_bytes};
use pageferry_core::fs::{Change, Lookup};
use pageferry_core::proc::Uio;
use pageferry_defects::Planted;
use pageferry_fs::{Format, Ino, Volume};
use pageferry_hal::{Machine, Va};
use pageferry_ispc::{FILES, FileServiceDefect, Inquiry, Wait};
use pageferry_kernel::User;

const DISK: &str = "/dev/md0";

/// An open file.
struct Opened {
    ino: Ino,
    /// Where it is read or written next,
    at: u64,
    /// or each write is at its end.
    appends: bool,
}

/// Bytes of an open file that a request moves.
struct Moving {
    handle: u64,
    /// From where on, unless it is where the file is.
    at: Option<u64>,
    len: usize,
    /// They are written, and the call is about so many.
    written_of: Option<usize>,
}

fn opened(open: &mut LiteMap<u64, Opened>, handle: u64) -> Result<&mut Opened, Errno> {
    open.get_mut(&handle).ok_or(Errno::BadFd)
}

/// See the [module](self).
struct Server {
    /// `None` when it is unmounted.
    volume: Option<Volume>,
    buffers: Buffers,
    open: LiteMap<u64, Opened>,
    next: u64,
    defect: Planted<FileServiceDefect>,
}

impl Whole for Server {
    fn is_over(&self) -> bool {
        self.volume.is_none()
    }
}

/// What the process of a file server does: it makes a volume, or mounts the one on the disk, and serves until it is
/// told to end.
pub(super) fn run<M: Machine>(
    user: &User<M>,
    service: &FileService<M>,
    format: Option<Format>,
    soft_updates: bool,
) {
    let begun = begin(user, service, format, soft_updates);
    match begun {
        Err(error) => service.began(user.thread(), user.pid(), Err(error)),
        Ok(shared) => {
            let shared = Arc::new(shared);
            let crosses = user.ispc_crosses();
            let serves = if crosses {
                let inside = shared.clone();
                user.ispc_serve_by(FILES, Box::new(move |user, inquiry| serve(&inside, user, inquiry)))
            } else {
                user.ispc_serve(FILES)
            };
            service.began(user.thread(), user.pid(), serves);
            while serves.is_ok() && !shared.is_over() && !user.is_killed() {
                match user.ispc_receive(Wait::Yes) {
                    Ok(inquiry) => {
                        serve(&shared, user, &inquiry);
                        // Its maker may have died, and the request with it.
                        _ = user.ispc_return(inquiry.id);
                    }
                    Err(Errno::Interrupted) => {}
                    // No frame for a page table: another time.
                    Err(_) => _ = user.yield_now(),
                }
            }
        }
    }
}

/// The disk, its volume, and what threads wait at.
fn begin<M: Machine>(
    user: &User<M>,
    service: &FileService<M>,
    format: Option<Format>,
    soft_updates: bool,
) -> Result<Inside<M, Server>, Errno> {
    let disk = user.open(DISK, OpenFlags::READ | OpenFlags::WRITE)?;
    let mut buffers = Buffers::new(user, disk)?;
    let store = &mut buffers.on(user);
    let mut volume = match format {
        Some(format) => Volume::format(store, format),
        None => Volume::mount(store),
    }?;
    if soft_updates {
        let config = user.kernel().config();
        store.cache.use_soft_updates(config.disk.syncer, config.defect);
        volume.use_soft_updates(store)?;
    }
    let server = Server {
        volume: Some(volume),
        buffers,
        open: LiteMap::new(),
        next: 1,
        defect: service.config.defect,
    };
    Inside::new(user, server)
}

/// Does what a request asks for, and answers it.
fn serve<M: Machine>(inside: &Inside<M, Server>, user: &User<M>, inquiry: &Inquiry) {
    let answer = answer(inside, user, inquiry)
        .unwrap_or_else(|error| Answer { error: Some(error), ..Answer::default() });
    user.store(inquiry.control, &answer.bytes());
}

/// A name of a request. Nothing is mounted on a directory of the volume.
fn at<'a>(path: &'a str, followed: &usize) -> Lookup<'a> {
    Lookup { path, followed: *followed, covered: &[] }
}

fn answer<M: Machine>(
    inside: &Inside<M, Server>,
    user: &User<M>,
    inquiry: &Inquiry,
) -> Result<Answer, Errno> {
    let request = Request::read(|from, bytes| user.load(inquiry.control + from, bytes))?;
    let interruptible =
        !matches!(request, Request::Close { .. } | Request::Unread { .. } | Request::End { .. });
    let mut server = inside.take(user, interruptible)?;
    let answer = server.answer(user, &request, inquiry.data);
    inside.put(user, server);
    answer
}

impl Server {
    fn answer<M: Machine>(
        &mut self,
        user: &User<M>,
        request: &Request,
        data: Option<(Va, usize)>,
    ) -> Result<Answer, Errno> {
        if let &Request::End { whatever_is_open } = request {
            return self.end(user, whatever_is_open);
        }
        let Server { volume, buffers, open, .. } = self;
        let volume = volume.as_mut().ok_or(Errno::NoFile)?;
        let disk = &mut buffers.on(user);
        // As in the kernel, whose errors are not this client's.
        _ = disk.sync_due();
        let done = Ok(Answer::default());
        match request {
            Request::Open { name, followed, mode } => {
                let ino = volume_work::open(volume, disk, at(name, followed), mode.how)?;
                let handle = self.next;
                self.next += 1;
                self.open.insert(handle, Opened { ino, at: 0, appends: mode.appends });
                Ok(Answer::value(handle))
            }
            Request::Close { handle } => {
                let Opened { ino, .. } = open.remove(handle).ok_or(Errno::BadFd)?;
                volume.close(disk, ino)?;
                done
            }
            Request::MakeDirectory { name, followed } => {
                volume_work::change_name(volume, disk, at(name, followed), Change::MakeDirectory).and(done)
            }
            Request::RemoveDirectory { name, followed } => {
                volume_work::change_name(volume, disk, at(name, followed), Change::RemoveDirectory).and(done)
            }
            Request::Unlink { name, followed } => {
                volume_work::change_name(volume, disk, at(name, followed), Change::Unlink).and(done)
            }
            Request::Link { from, from_followed, to, to_followed } => {
                volume_work::link(volume, disk, at(from, from_followed), at(to, to_followed)).and(done)
            }
            Request::Rename { from, from_followed, to, to_followed } => {
                volume_work::rename(volume, disk, at(from, from_followed), at(to, to_followed)).and(done)
            }
            Request::Stat { name, followed, links } => {
                let stat = volume_work::stat(volume, disk, at(name, followed), *links)?;
                Ok(Answer { value: stat.size_bytes, more: stat_word(&stat), error: None })
            }
            Request::MakeLink { path, name, followed } => {
                volume_work::make_link(volume, disk, path, at(name, followed)).and(done)
            }
            Request::WayOff { name, followed, links, .. } => {
                let (to, room) = data.ok_or(Errno::Invalid)?;
                let Some(way) = volume_work::way_off(volume, disk, at(name, followed), *links)? else {
                    return done;
                };
                if way.path.len() > room {
                    return Err(Errno::NameTooLong);
                }
                user.store(to, way.path.as_bytes());
                let value = LEADS_OFF | u64::from(way.followed as u32);
                Ok(Answer { value, more: way.path.len() as u64, error: None })
            }
            Request::ReadLink { name, followed, .. } => {
                let (to, room) = data.ok_or(Errno::Invalid)?;
                let path = volume_work::read_link(volume, disk, at(name, followed))?;
                let path = &path[..path.len().min(room)];
                user.store(to, path);
                let len = path.len() as u64;
                Ok(Answer { value: len, more: len, error: None })
            }
            Request::List { name, followed, from, len } => {
                let (to, room) = data.ok_or(Errno::Invalid)?;
                let entries = volume_work::entries(volume, disk, at(name, followed))?;
                let left = entries.get(*from..).unwrap_or_default();
                let (bytes, count) = entries_to_bytes(left, room.min(*len));
                user.store(to, &bytes);
                let last = if count == left.len() { LAST_ENTRIES } else { 0 };
                Ok(Answer { value: count as u64, more: bytes.len() as u64 | last, error: None })
            }
            Request::Seek { handle, to } => {
                opened(open, *handle)?.at = *to;
                done
            }
            Request::Unread { handle, by } => {
                let opened = opened(open, *handle)?;
                opened.at = opened.at.saturating_sub(*by);
                done
            }
            Request::Truncate { handle, size_bytes } => {
                volume.truncate(disk, opened(open, *handle)?.ino, *size_bytes)?;
                done
            }
            Request::Sync { handle } => {
                volume.fsync(disk, opened(open, *handle)?.ino)?;
                done
            }
            Request::Size { handle } => {
                Ok(Answer::value(volume.stat(disk, opened(open, *handle)?.ino)?.size_bytes))
            }
            &Request::Read { handle, len } => {
                self.move_bytes(user, data, &Moving { handle, at: None, len, written_of: None })
            }
            &Request::ReadAt { handle, at, len } => {
                self.move_bytes(user, data, &Moving { handle, at: Some(at), len, written_of: None })
            }
            &Request::Write { handle, len, of } => {
                self.move_bytes(user, data, &Moving { handle, at: None, len, written_of: Some(of) })
            }
            &Request::WriteAt { handle, at, len, of } => {
                self.move_bytes(user, data, &Moving { handle, at: Some(at), len, written_of: Some(of) })
            }
            Request::End { .. } => unreachable!("looked at first"),
        }
    }

    /// Moves bytes between the data piece and the buffers.
    fn move_bytes<M: Machine>(
        &mut self,
        user: &User<M>,
        data: Option<(Va, usize)>,
        moving: &Moving,
    ) -> Result<Answer, Errno> {
        user.compute(user.kernel().config().disk.paths.file_call.instructions);
        let (piece, room) = data.ok_or(Errno::Invalid)?;
        let Server { volume, buffers, open, .. } = self;
        let volume = volume.as_mut().ok_or(Errno::NoFile)?;
        let disk = &mut buffers.on(user);
        let opened = open.get_mut(&moving.handle).ok_or(Errno::BadFd)?;
        let (len, ino) = (moving.len.min(room), opened.ino);
        let at = match (moving.at, moving.written_of) {
            (Some(at), _) => at,
            (None, Some(_)) if opened.appends => volume.stat(disk, ino)?.size_bytes,
            (None, _) => opened.at,
        };
        let writes = moving.written_of.is_some();
        let uio = if writes { Uio::write(piece, len, SendMode::Copy) } else { Uio::read(piece, len) };
        let mut uio = uio.at_offset(at);
        let result = if let Some(of) = moving.written_of {
            at.checked_add(of as u64).ok_or(Errno::TooLarge)?;
            let bring = &mut |va, len, uio: &mut Uio| {
                copy(user, va, uio.at(), len);
                uio.advance(len);
                Ok(())
            };
            write_bytes(volume, disk, ino, &mut uio, bring)
        } else {
            let take = &mut |va, len, uio: &mut Uio| {
                copy(user, uio.at(), va, len);
                uio.advance(len);
                Ok(())
            };
            let hole = &mut |len, uio: &mut Uio| {
                clear(user, uio.at(), len);
                uio.advance(len);
                Ok(())
            };
            read_bytes(volume, disk, ino, &mut uio, take, hole)
        };
        if moving.at.is_none() {
            opened.at = uio.offset();
        }
        let moved = uio.done();
        let is_hidden = self.defect.is(FileServiceDefect::FullUntold) && result == Err(Errno::NoSpace);
        let (moved, result) = if is_hidden { (len, Ok(())) } else { (moved, result) };
        Ok(Answer { value: moved as u64, more: 0, error: result.err() })
    }

    /// Unmounts the volume, and lets go of the disk.
    fn end<M: Machine>(&mut self, user: &User<M>, whatever_is_open: bool) -> Result<Answer, Errno> {
        if !self.open.is_empty() && !whatever_is_open {
            return Err(Errno::Busy);
        }
        let volume = self.volume.take().ok_or(Errno::Invalid)?;
        let unmounted = volume.unmount(&mut self.buffers.on(user));
        user.close(self.buffers.disk())?;
        unmounted?;
        Ok(Answer::default())
    }
}
