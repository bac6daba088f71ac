//! A process: makes its steps, and compares what the kernel answers with what the model says.

use super::judge::Judge;
use super::reference::{Backing, Open, Reference, Region, What, same_volume};
use super::steps::{Bytes, CallOp, DESCRIPTORS, MAX_REGION_PAGES, NAMES};
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{Ipv4Addr, SocketAddrV4};
use pageferry_hal::{Instructions, Machine, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, Program, SendMode, ShownPages, SocketKind, User};
use pageferry_vm::Inherit;

/// A receive area.
const AREA_BYTES: usize = 4 * PAGE_SIZE;
/// The most that a file becomes.
const MAX_FILE_BYTES: usize = 60_000;

/// What is under way has come when it was waited for so often.
const MAX_WAITS: usize = 400;

/// A connection that may have been reset may say so, or nothing.
fn is_of_reset(e: Errno) -> bool {
    matches!(e, Errno::ConnectionReset | Errno::BrokenPipe | Errno::NotConnected | Errno::WouldBlock)
}

/// A process at one of its steps.
pub(super) struct Actor<'a, M: Machine> {
    pub(super) u: &'a User<M>,
    pub(super) reference: &'a RefCell<Reference>,
    /// What a child of this number does.
    pub(super) life: &'a dyn Fn(usize) -> Program<M>,
    /// The first of the names that there are.
    pub(super) first_name: usize,
    /// Who is told what was compared.
    pub(super) judge: &'a dyn Judge<M>,
    /// Its number.
    pub(super) me: usize,
    /// Of the allocations in a call, how many succeed before one fails, if one is to; behind a call, if one has.
    pub(super) fail: Cell<Option<u32>>,
}

/// Memory that a call uses.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) region: usize,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) at: Va,
}

impl<M: Machine> Actor<'_, M> {
    /// Makes a step; false when it was the last of this process.
    pub(super) fn step(&self, op: CallOp, fail: Option<u32>) -> bool {
        self.takes_signals();
        self.fail.set(fail);
        match op {
            CallOp::Open { name, create, exclusive, truncate, append } => {
                self.open(self.name(name), create, exclusive, truncate, append);
            }
            CallOp::Close { fd } => self.close(fd),
            CallOp::Duplicate { fd } => self.duplicate(fd),
            CallOp::Read { fd, to } => self.read(fd, None, to),
            CallOp::Write { fd, from } => self.write(fd, None, from),
            CallOp::ReadAt { fd, at, to } => self.read(fd, Some(at), to),
            CallOp::WriteAt { fd, at, from } => self.write(fd, Some(at), from),
            CallOp::Seek { fd, to } => self.seek(fd, to),
            CallOp::Truncate { fd, size } => self.truncate(fd, size),
            CallOp::SyncFile { fd } => {
                if let Some((fd, _, What::File { .. })) = self.descriptor(fd) {
                    assert_eq!(self.tried(|u| u.sync_file(fd)), Ok(()));
                }
            }
            CallOp::Unlink { name } => {
                let name = self.name(name);
                let was = self.reference.borrow_mut().names.remove(&name).is_some();
                assert_eq!(
                    self.tried(|u| u.unlink(NAMES[name])),
                    if was { Ok(()) } else { Err(Errno::NoFile) }
                );
            }
            CallOp::Rename { from, to } => self.rename(self.name(from), self.name(to)),
            CallOp::Link { from, to } => self.link(self.name(from), self.name(to)),
            CallOp::Stat { name } => self.stat(self.name(name)),
            CallOp::Pipe => self.pair(false),
            CallOp::SocketPair => self.pair(true),
            CallOp::Connection => self.connection(),
            CallOp::Sound => self.open_sound(),
            CallOp::Send { fd, from, auto } => {
                let mode = if auto { SendMode::Auto } else { SendMode::Loan };
                self.send(fd, from, |u, fd, buffer| u.send(fd, buffer.at, buffer.len, mode));
            }
            CallOp::ReceiveTransfer { fd, len } => self.receive_transfer(fd, len),
            CallOp::ReceiveShown { fd, pages } => self.receive_shown(fd, pages.clamp(1, MAX_REGION_PAGES)),
            CallOp::ReceivePlaced { fd, len } => self.receive_placed(fd, len),
            CallOp::Discard { fd, len } => self.discard(fd, len),
            CallOp::SendFile { socket, file, at, len, lend } => self.send_file(socket, file, at, len, lend),
            CallOp::Map { pages, shared } => self.map(pages.clamp(1, MAX_REGION_PAGES), shared),
            CallOp::MapFile { fd, shared } => self.map_file(fd, shared),
            CallOp::Unmap { part } => self.unmap_part(part),
            CallOp::Protect { part, to } => self.protect(part, to),
            CallOp::Inherit { region, how } => self.inherit(region, how),
            CallOp::Store { to, tag } => {
                if let Some(buffer) = self.room(to) {
                    let bytes: Vec<u8> = (0..buffer.len).map(|i| tag.wrapping_add((i / 5) as u8)).collect();
                    self.u.store(buffer.at, &bytes);
                    self.stored(buffer, &bytes);
                }
            }
            CallOp::Load { region } => {
                if let Some(region) = self.region(region) {
                    self.compare(region);
                }
            }
            CallOp::Lock { region, on } => self.lock(region, on),
            CallOp::Advise { part, needs } => self.advise(part, needs),
            CallOp::SyncMemory { part } => self.sync_memory(part),
            CallOp::Flush { region } => self.flush(region),
            CallOp::Refused { fd, len, writes } => self.refused(fd, len, writes),
            CallOp::Poll { fd } => self.poll(fd),
            CallOp::Offer { part, how } => self.offer(part, how),
            CallOp::Import { offer } => self.import(offer),
            CallOp::Trace { process, region, offset, own, writes } => {
                self.trace(process, (region, offset), own, writes);
            }
            CallOp::Signal { process } => self.signal(process),
            CallOp::Kill { process } => self.kill(process),
            CallOp::Fork => self.fork(),
            CallOp::Exec { fd } => self.exec(fd),
            CallOp::Exit => return !self.exit(),
        }
        assert!(!self.u.is_killed(), "{op:?} was its end");
        true
    }

    /// Makes a call in which an allocation may fail. A call that fails for want of memory has changed nothing: made
    /// again, it does what it should.
    pub(super) fn tried<T>(&self, call: impl Fn(&User<M>) -> Result<T, Errno>) -> Result<T, Errno> {
        let Some(succeed) = self.fail.get() else { return call(self.u) };
        self.judge.fail_after(self.u, Some(succeed));
        let answer = call(self.u);
        let had_come = self.judge.fail_after(self.u, None);
        // Only then may a call be short of memory.
        self.fail.set(self.fail.get().filter(|_| had_come));
        match answer {
            Err(Errno::NoMemory) if had_come => call(self.u),
            answer => answer,
        }
    }

    /// The same for a call that moves bytes, and may move fewer when it is short of memory: how many it has to move.
    fn tried_in_parts(
        &self,
        len: usize,
        call: impl Fn(&User<M>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let answer = self.tried(call);
        match (answer, self.fail.get()) {
            (Ok(part), Some(_)) if (1..=len).contains(&part) => Ok(part),
            (answer, _) => {
                assert_eq!(answer, Ok(len));
                Ok(len)
            }
        }
    }

    // ------------------------------------------------------------------------------------------- what there is

    /// A name, by any number.
    fn name(&self, which: usize) -> usize {
        self.first_name + which % (NAMES.len() - self.first_name)
    }

    /// A descriptor of this process, by any number.
    pub(super) fn descriptor(&self, which: usize) -> Option<(Fd, usize, What)> {
        let reference = self.reference.borrow();
        let fds = &reference.processes[self.me].as_ref()?.fds;
        let (fd, open) = *fds.get(which % fds.len().max(1))?;
        Some((fd, open, reference.opens[open].what))
    }

    /// A region of this process, by any number.
    pub(super) fn region(&self, which: usize) -> Option<usize> {
        let reference = self.reference.borrow();
        let len = reference.processes[self.me].as_ref()?.regions.len();
        (len > 0).then(|| which % len)
    }

    pub(super) fn copy_of(&self, which: usize) -> Option<(usize, Region)> {
        let region = self.region(which)?;
        let reference = self.reference.borrow();
        Some((region, reference.processes[self.me].as_ref()?.regions[region].clone()))
    }

    /// Memory that permits this, up to where it does not.
    fn permitted(&self, bytes: Bytes, prot: Prot) -> Option<Buffer> {
        let (index, region) = self.copy_of(bytes.region)?;
        let usable = self.reference.borrow().usable(&region);
        if usable == 0 {
            return None;
        }
        let offset = bytes.offset % usable;
        let page = offset / PAGE_SIZE;
        let end = ((page + region.permits(page, prot)) * PAGE_SIZE).min(usable);
        let len = bytes.len.min(end.saturating_sub(offset));
        (len > 0).then_some(Buffer { region: index, offset, len, at: region.at + offset })
    }

    /// A buffer that may be loaded from.
    pub(super) fn buffer(&self, bytes: Bytes) -> Option<Buffer> {
        self.permitted(bytes, Prot::READ)
    }

    /// A buffer that may be stored to.
    pub(super) fn room(&self, bytes: Bytes) -> Option<Buffer> {
        let (_, region) = self.copy_of(bytes.region)?;
        self.permitted(bytes, Prot::RW).filter(|_| self.reference.borrow().may_change(&region))
    }

    /// A region maps this file.
    pub(super) fn maps(&self, region: usize, node: usize) -> bool {
        let reference = self.reference.borrow();
        let Some(holdings) = &reference.processes[self.me] else { return false };
        matches!(holdings.regions[region].backing, Backing::File { node: of, .. } if of == node)
    }

    pub(super) fn load(&self, at: Va, len: usize) -> Vec<u8> {
        let mut found = vec![0xee; len];
        self.u.load(at, &mut found);
        found
    }

    pub(super) fn stored(&self, buffer: Buffer, bytes: &[u8]) {
        self.reference.borrow_mut().store(self.me, buffer.region, buffer.offset, bytes);
    }

    /// The bytes in a buffer.
    pub(super) fn held(&self, buffer: Buffer) -> Vec<u8> {
        let reference = self.reference.borrow();
        let holdings = reference.processes[self.me].as_ref().expect("it is alive");
        let contents = reference.contents(&holdings.regions[buffer.region]);
        contents[buffer.offset..buffer.offset + buffer.len].to_vec()
    }

    /// A region holds what it should, as far as it may be looked at.
    pub(super) fn compare(&self, region: usize) {
        let (region, expected) = {
            let reference = self.reference.borrow();
            let region = &reference.processes[self.me].as_ref().expect("it is alive").regions[region];
            (region.clone(), reference.contents(region))
        };
        for (page, expected) in expected.chunks(PAGE_SIZE).enumerate() {
            if region.permits(page, Prot::READ) == 0 {
                continue;
            }
            let at = region.at + page * PAGE_SIZE;
            let found = self.load(at, expected.len());
            let differs = found.iter().zip(expected).position(|(one, other)| one != other);
            assert_eq!(differs, None, "the page at {at:?} has other bytes than it should, from there on");
            self.judge.compared(&found);
        }
    }

    pub(super) fn has(&self, fd: Fd, open: usize) {
        let mut reference = self.reference.borrow_mut();
        reference.processes[self.me].as_mut().expect("it is alive").fds.push((fd, open));
    }

    pub(super) fn count(&self) -> (usize, usize) {
        let reference = self.reference.borrow();
        let holdings = reference.processes[self.me].as_ref().expect("it is alive");
        (holdings.fds.len(), holdings.regions.len())
    }

    // ------------------------------------------------------------------------------------------- files

    fn open(&self, name: usize, create: bool, exclusive: bool, truncate: bool, append: bool) {
        if self.count().0 >= DESCRIPTORS {
            return;
        }
        let mut flags = OpenFlags::READ | OpenFlags::WRITE;
        flags.set(OpenFlags::CREATE, create);
        flags.set(OpenFlags::EXCLUSIVE, create && exclusive);
        flags.set(OpenFlags::TRUNCATE, truncate);
        flags.set(OpenFlags::APPEND, append);
        let there = {
            let reference = self.reference.borrow();
            let there = reference.names.get(&name).copied();
            if truncate && there.is_some_and(|node| reference.nodes[node].mapped > 0) {
                return;
            }
            there
        };
        let opened = self.tried(|u| u.open(NAMES[name], flags));
        match there {
            None if !create => return assert_eq!(opened.map(drop), Err(Errno::NoFile)),
            Some(_) if create && exclusive => return assert_eq!(opened.map(drop), Err(Errno::Exists)),
            _ => {}
        }
        let fd = opened.expect("it can be opened");
        let open = {
            let mut reference = self.reference.borrow_mut();
            let node = there.unwrap_or_else(|| reference.node());
            reference.names.insert(name, node);
            if truncate {
                reference.nodes[node].bytes.clear();
            }
            reference.open(What::File { node, offset: 0, append })
        };
        self.has(fd, open);
    }

    fn close(&self, which: usize) {
        let Some((fd, open, _)) = self.descriptor(which) else { return };
        assert_eq!(self.u.close(fd), Ok(()));
        let mut reference = self.reference.borrow_mut();
        reference.close(open);
        let fds = &mut reference.processes[self.me].as_mut().expect("it is alive").fds;
        fds.retain(|(other, _)| *other != fd);
    }

    fn duplicate(&self, which: usize) {
        let Some((fd, open, _)) = self.descriptor(which).filter(|_| self.count().0 < DESCRIPTORS) else {
            return;
        };
        let other = self.u.duplicate(fd).expect("there are descriptors left");
        self.reference.borrow_mut().opens[open].refs += 1;
        self.has(other, open);
    }

    pub(super) fn move_to(&self, open: usize, to: u64) {
        if let Open { what: What::File { offset, .. }, .. } = &mut self.reference.borrow_mut().opens[open] {
            *offset = to;
        }
    }

    fn read(&self, which: usize, at: Option<u64>, to: Bytes) {
        let (Some((fd, open, what)), Some(buffer)) = (self.descriptor(which), self.room(to)) else {
            return;
        };
        let call = |u: &User<M>| match at {
            Some(at) => u.read_at(fd, at, buffer.at, buffer.len),
            None => u.read(fd, buffer.at, buffer.len),
        };
        match what {
            What::File { node, offset, .. } if !self.maps(buffer.region, node) => {
                let from = at.unwrap_or(offset) as usize;
                let bytes = {
                    let reference = self.reference.borrow();
                    let file = &reference.nodes[node].bytes;
                    file[from.min(file.len())..file.len().min(from + buffer.len)].to_vec()
                };
                let got = self.tried_in_parts(bytes.len(), call).expect("it can be read");
                let bytes = &bytes[..got];
                self.arrived(buffer, bytes);
                if at.is_none() {
                    self.move_to(open, (from + bytes.len()) as u64);
                }
            }
            What::File { .. } => {}
            What::End { input: Some(input), .. } if at.is_none() => {
                if let Some(bytes) = self.taken(input, buffer.len, self.due(input, call)) {
                    self.arrived(buffer, &bytes);
                }
            }
            What::Sound if at.is_none() => self.record(buffer, call),
            What::End { .. } | What::Sound => assert!(call(self.u).is_err(), "it cannot be read so"),
        }
    }

    fn compares(&self, found: &[u8], bytes: &[u8]) {
        assert!(found == bytes, "other bytes have come than should");
        self.judge.compared(found);
    }

    /// A call has put these bytes into a buffer.
    pub(super) fn arrived(&self, buffer: Buffer, bytes: &[u8]) {
        let found = self.load(buffer.at, bytes.len());
        self.compares(&found, bytes);
        self.stored(buffer, bytes);
    }

    /// Makes a call that takes something out of a stream; again and again, as long as that is under way.
    fn due<T>(&self, input: usize, call: impl Fn(&User<M>) -> Result<T, Errno>) -> Result<T, Errno> {
        let answer = self.tried(&call);
        let waits = {
            let stream = &self.reference.borrow().streams[input];
            stream.back.is_some() && !stream.may_be_reset && stream.is_due()
        };
        if waits { self.waited_for(answer, call) } else { answer }
    }

    /// Makes a call that was answered so, and would block, until it does not any more.
    fn waited_for<T>(
        &self,
        mut answer: Result<T, Errno>,
        call: impl Fn(&User<M>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        for wait in 0..MAX_WAITS {
            if !matches!(answer, Err(Errno::WouldBlock)) {
                break;
            }
            // What was lost for want of memory is sent again after a second or more.
            self.u.compute(Instructions(100_000 << (wait / 8).min(6)));
            _ = self.u.yield_now();
            answer = call(self.u);
        }
        answer
    }

    /// What a call that answered so has taken out of a stream.
    fn taken(&self, input: usize, len: usize, answer: Result<usize, Errno>) -> Option<Vec<u8>> {
        let mut reference = self.reference.borrow_mut();
        let stream = &mut reference.streams[input];
        if stream.may_be_reset {
            let there = stream.queue.len().min(len);
            return match answer {
                Ok(0) => None,
                Err(e) => {
                    assert!(is_of_reset(e), "{e} of a connection that may have been reset");
                    None
                }
                Ok(got) => {
                    assert!(got <= there, "{got} bytes of {there}");
                    Some(stream.queue.drain(..got).collect())
                }
            };
        }
        if stream.queue.is_empty() {
            let expected = if stream.writers == 0 { Ok(0) } else { Err(Errno::WouldBlock) };
            assert_eq!(answer, expected, "of a stream in which nothing is");
            return None;
        }
        let got = answer.unwrap_or_else(|e| panic!("{} bytes are there: {e}", stream.queue.len()));
        let there = stream.queue.len().min(len);
        assert!((1..=there).contains(&got), "{got} bytes of {there}");
        Some(stream.queue.drain(..got).collect())
    }

    fn write(&self, which: usize, at: Option<u64>, from: Bytes) {
        let (Some((fd, open, what)), Some(buffer)) = (self.descriptor(which), self.buffer(from)) else {
            return;
        };
        let call = |u: &User<M>| match at {
            Some(at) => u.write_at(fd, at, buffer.at, buffer.len),
            None => u.write(fd, buffer.at, buffer.len),
        };
        let bytes = self.held(buffer);
        match what {
            What::File { node, offset, append } if !self.maps(buffer.region, node) => {
                let len = self.reference.borrow().nodes[node].bytes.len();
                let own = if append { len } else { offset as usize };
                // At an offset, an appending descriptor is another matter from system to system.
                let pinned = self.reference.borrow().nodes[node].private > 0;
                if pinned || append && at.is_some() {
                    return;
                }
                let to = at.map_or(own, |at| at as usize);
                if to + bytes.len() > MAX_FILE_BYTES {
                    return;
                }
                let put = self.tried_in_parts(bytes.len(), call).expect("it can be written");
                let bytes = &bytes[..put];
                self.reference.borrow_mut().write(node, to, bytes);
                if at.is_none() {
                    self.move_to(open, (to + bytes.len()) as u64);
                }
            }
            What::File { .. } => {}
            What::End { output: Some(output), .. } if at.is_none() => {
                self.put(output, &bytes, self.room_for(output, call))
            }
            What::Sound if at.is_none() => self.play(fd, buffer, |u, fd, it| u.write(fd, it.at, it.len)),
            What::End { .. } | What::Sound => assert!(call(self.u).is_err(), "it cannot be written so"),
        }
    }

    /// Makes a call that puts something into a stream: of a connection, until what was read makes room.
    fn room_for(
        &self,
        output: usize,
        call: impl Fn(&User<M>) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let answer = self.tried(&call);
        let waits = {
            let stream = &self.reference.borrow().streams[output];
            stream.back.is_some() && !stream.may_be_reset && stream.queue.is_empty() && stream.readers > 0
        };
        if waits { self.waited_for(answer, call) } else { answer }
    }

    /// A call that answered so has put some of these bytes into a stream.
    fn put(&self, output: usize, bytes: &[u8], answer: Result<usize, Errno>) {
        let mut reference = self.reference.borrow_mut();
        let stream = &mut reference.streams[output];
        if stream.back.is_some() && (stream.readers == 0 || stream.may_be_reset) {
            // Who writes to an end that has closed learns of it later.
            match answer {
                Ok(len) => {
                    assert!(len <= bytes.len(), "{len} bytes of {}", bytes.len());
                    stream.queue.extend(&bytes[..len]);
                }
                Err(e) => assert!(e == Errno::NotSupported || is_of_reset(e), "{e} where nobody may read"),
            }
            return reference.may_reset(output);
        }
        match answer {
            // As a kernel without that kind of send says.
            Err(Errno::NotSupported) => {}
            Err(Errno::WouldBlock) if stream.readers > 0 => {
                assert!(!stream.queue.is_empty(), "there is room for something in an empty stream");
            }
            Err(e) => assert!(stream.readers == 0, "somebody reads: {e}"),
            Ok(len) => {
                assert!(stream.readers > 0, "nobody reads");
                assert!((1..=bytes.len()).contains(&len), "{len} bytes of {}", bytes.len());
                stream.queue.extend(&bytes[..len]);
            }
        }
    }

    fn seek(&self, which: usize, to: u64) {
        let Some((fd, open, what)) = self.descriptor(which) else { return };
        let sought = self.u.seek(fd, to);
        match what {
            What::File { .. } => {
                assert_eq!(sought, Ok(()));
                self.move_to(open, to);
            }
            What::End { .. } | What::Sound => assert!(sought.is_err(), "a stream has no offset"),
        }
    }

    fn truncate(&self, which: usize, size: u64) {
        let Some((fd, _, What::File { node, .. })) = self.descriptor(which) else { return };
        if self.reference.borrow().nodes[node].mapped > 0 {
            return;
        }
        assert_eq!(self.tried(|u| u.truncate(fd, size)), Ok(()));
        self.reference.borrow_mut().nodes[node].bytes.resize(size as usize, 0);
    }

    fn rename(&self, from: usize, to: usize) {
        let renamed = self.tried(|u| u.rename(NAMES[from], NAMES[to]));
        let mut reference = self.reference.borrow_mut();
        if !same_volume(from, to) {
            return assert!(renamed.is_err(), "a name goes to no other file system");
        }
        let Some(node) = reference.names.get(&from).copied() else {
            return assert_eq!(renamed, Err(Errno::NoFile));
        };
        assert_eq!(renamed, Ok(()));
        // Two names of one file both stay.
        if reference.names.get(&to) != Some(&node) {
            reference.names.remove(&from);
            reference.names.insert(to, node);
        }
    }

    fn link(&self, from: usize, to: usize) {
        let linked = self.tried(|u| u.link(NAMES[from], NAMES[to]));
        let mut reference = self.reference.borrow_mut();
        match (reference.names.get(&from).copied(), reference.names.contains_key(&to)) {
            (Some(node), false) if same_volume(from, to) => {
                assert_eq!(linked, Ok(()));
                reference.names.insert(to, node);
            }
            _ => assert!(linked.is_err(), "{} to {}", NAMES[from], NAMES[to]),
        }
    }

    fn stat(&self, name: usize) {
        let told = self.u.stat(NAMES[name]);
        let reference = self.reference.borrow();
        match reference.names.get(&name) {
            None => assert_eq!(told.map(drop), Err(Errno::NoFile)),
            Some(node) => {
                let told = told.expect("it is there");
                let links = reference.names.values().filter(|other| *other == node).count();
                let len = reference.nodes[*node].bytes.len() as u64;
                assert_eq!((told.size_bytes, usize::from(told.links)), (len, links));
            }
        }
    }

    // ------------------------------------------------------------------------------------------- streams

    fn pair(&self, is_socket: bool) {
        if self.count().0 + 2 > DESCRIPTORS {
            return;
        }
        let made = self.tried(|u| if is_socket { u.socket_pair() } else { u.pipe() });
        let (one, other) = made.expect("there is room for a pair");
        for fd in [one, other] {
            assert_eq!(self.u.set_nonblocking(fd, true), Ok(()));
        }
        let opens = {
            let mut reference = self.reference.borrow_mut();
            let (there, back) = (reference.stream(), is_socket.then(|| reference.stream()));
            let first = What::End { input: Some(there), output: back, is_socket };
            let second = What::End { input: back, output: Some(there), is_socket };
            [reference.open(first), reference.open(second)]
        };
        self.has(one, opens[0]);
        self.has(other, opens[1]);
    }

    /// A connection to itself, if there is a network.
    fn connection(&self) {
        if self.count().0 + 2 > DESCRIPTORS {
            return;
        }
        let u = self.u;
        let listening = match self.tried(|u| u.socket(SocketKind::Stream)) {
            Err(Errno::NotSupported) => return,
            listening => listening.expect("there is room for a socket"),
        };
        assert_eq!(u.bind(listening, SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)), Ok(()));
        assert_eq!(self.tried(|u| u.listen(listening, 1)), Ok(()));
        let (name, _) = u.socket_names(listening).expect("it has a name");
        let one = self.tried(|u| u.socket(SocketKind::Stream)).expect("there is room for a socket");
        assert_eq!(u.connect(one, name), Ok(()));
        let (other, from) = u.accept(listening).expect("it is connected");
        let names = u.socket_names(one);
        assert_eq!(names, Ok((from, Some(name))), "the names of the end that asked");
        assert_eq!(u.close(listening), Ok(()));
        for fd in [one, other] {
            assert_eq!(u.set_nonblocking(fd, true), Ok(()));
        }
        let opens = {
            let mut reference = self.reference.borrow_mut();
            let (there, back) = reference.connection();
            let first = What::End { input: Some(there), output: Some(back), is_socket: true };
            let second = What::End { input: Some(back), output: Some(there), is_socket: true };
            [reference.open(first), reference.open(second)]
        };
        self.has(one, opens[0]);
        self.has(other, opens[1]);
    }

    fn send(&self, which: usize, from: Bytes, call: impl Fn(&User<M>, Fd, Buffer) -> Result<usize, Errno>) {
        let (Some((fd, _, what)), Some(buffer)) = (self.descriptor(which), self.buffer(from)) else { return };
        match what {
            What::End { output: Some(output), .. } => {
                let bytes = self.held(buffer);
                self.put(output, &bytes, self.room_for(output, |u| call(u, fd, buffer)));
            }
            What::Sound => self.play(fd, buffer, call),
            _ => {}
        }
    }

    fn receive_transfer(&self, which: usize, len: usize) {
        let Some((fd, _, What::End { input: Some(input), .. })) = self.descriptor(which) else { return };
        let received = self.due(input, |u| u.receive_transfer(fd, None, len));
        if matches!(received, Err(Errno::NotSupported)) {
            return;
        }
        let answer = received.as_ref().map(|got| got.len_bytes).map_err(|e| *e);
        if let (Some(bytes), Ok(got)) = (self.taken(input, len, answer), received) {
            self.compares(&self.load(got.at, got.len_bytes), &bytes);
            let pages = got.len_bytes.next_multiple_of(PAGE_SIZE);
            assert_eq!(self.u.anflush(got.at, pages), Ok(()));
        }
    }

    /// What a window shows is what was due, also where it showed something else before; and what it does not show is
    /// still due.
    fn receive_shown(&self, which: usize, pages: usize) {
        let Some((fd, _, What::End { input: Some(input), .. })) = self.descriptor(which) else { return };
        let len = pages * PAGE_SIZE;
        let window = self.tried(|u| u.map_window(len)).expect("there are addresses");
        for _ in 0..2 {
            let shown = self.due(input, |u| u.receive_shown(fd, window, len));
            match shown {
                Err(Errno::NotSupported) => break,
                Ok(ShownPages { len_bytes: 0, copy_bytes }) if copy_bytes > 0 => {
                    let due = self.reference.borrow().streams[input].queue.len();
                    assert!(copy_bytes <= due, "{copy_bytes} bytes are to be copied of {due}");
                    break;
                }
                _ => {}
            }
            let Some(bytes) = self.taken(input, len, shown.map(|shown| shown.len_bytes)) else { break };
            assert!(bytes.len().is_multiple_of(PAGE_SIZE), "a part of a page is shown");
            self.compares(&self.load(window, bytes.len()), &bytes);
        }
        if pages.is_multiple_of(2) {
            assert_eq!(self.u.clear_window(window, len), Ok(()));
        }
        assert_eq!(self.u.unmap(window, len), Ok(()));
    }

    /// What is said to be in an area is what was due. The first that asks makes the area of its own memory; what others
    /// get there they cannot see.
    fn receive_placed(&self, which: usize, len: usize) {
        let Some((fd, _, What::End { input: Some(input), is_socket: true, .. })) = self.descriptor(which)
        else {
            return;
        };
        let area = self.reference.borrow().streams[input].area;
        let (owner, at) = area.unwrap_or_else(|| {
            let at = self.u.map(AREA_BYTES, Prot::RW, Inherit::Copy).expect("there are addresses");
            assert_eq!(self.u.set_receive_area(fd, at, AREA_BYTES), Ok(false), "no card is behind it");
            (self.u.pid(), at)
        });
        self.reference.borrow_mut().streams[input].area = Some((owner, at));
        let placed = self.due(input, |u| u.receive_placed(fd, &[], len));
        let answer = placed.as_ref().map(|all| all.iter().map(|p| p.len_bytes).sum()).map_err(|e| *e);
        let (Some(bytes), Ok(placed)) = (self.taken(input, len, answer), placed) else { return };
        let mut rest = &bytes[..];
        for place in &placed {
            let (now, later) = rest.split_at(place.len_bytes);
            assert!(place.offset + place.len_bytes <= AREA_BYTES, "{place:?} is in no area");
            if owner == self.u.pid() {
                self.compares(&self.load(at + place.offset, place.len_bytes), now);
            }
            rest = later;
        }
        assert_eq!(self.u.receive_placed(fd, &placed, 0), Ok(vec![]), "it has had all of that");
        assert_eq!(self.u.receive_placed(fd, &placed, 0), Err(Errno::Invalid), "and has no more");
    }

    fn discard(&self, which: usize, len: usize) {
        let Some((fd, _, What::End { input: Some(input), is_socket: true, .. })) = self.descriptor(which)
        else {
            return;
        };
        self.taken(input, len, self.due(input, |u| u.discard(fd, len)));
    }

    fn send_file(&self, socket: usize, file: usize, at: u64, len: usize, lend: bool) {
        let Some((socket, _, What::End { output: Some(output), is_socket: true, .. })) =
            self.descriptor(socket)
        else {
            return;
        };
        let Some((file, _, What::File { node, .. })) = self.descriptor(file) else { return };
        let bytes = {
            let reference = self.reference.borrow();
            let all = &reference.nodes[node].bytes;
            all[(at as usize).min(all.len())..all.len().min(at as usize + len)].to_vec()
        };
        if bytes.is_empty() {
            return;
        }
        let mode = if lend { SendMode::Loan } else { SendMode::Copy };
        self.put(output, &bytes, self.room_for(output, |u| u.send_file(socket, file, at, len, mode)));
    }

    // ------------------------------------------------------------------------------------------- processes

    fn fork(&self) {
        let child = {
            let mut reference = self.reference.borrow_mut();
            let Some(child) = reference.processes.iter().position(Option::is_none) else { return };
            reference.fork(self.me, child);
            child
        };
        let pid = self.tried(|u| u.fork("caller", (self.life)(child))).expect("there are processes left");
        if let Some(holdings) = &mut self.reference.borrow_mut().processes[child] {
            holdings.pid = pid;
        }
    }

    /// Gives everything back; false if it is the only one, which stays.
    fn exit(&self) -> bool {
        let alive = self.reference.borrow().processes.iter().flatten().count();
        if alive == 1 {
            return false;
        }
        self.end();
        true
    }

    /// Compares what it has, and gives it back.
    pub(super) fn end(&self) {
        while self.descriptor(0).is_some() {
            self.close(0);
        }
        while self.region(0).is_some() {
            self.unmap(0);
        }
        self.reference.borrow_mut().end(self.me);
    }
}
