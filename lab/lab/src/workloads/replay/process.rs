//! One recorded program as a process: its memory is mapped, its references are made, its system calls asked.
//!
//! Every load is checked against what must be there ([`Shadow`]), and every byte that goes through a pipe against what
//! was written at its other end. An address that nothing maps ends the process, and the run with it.
//!
//! A program whose files are its own ([`Replay::with_files`]) execs its image and makes its calls about files and
//! children as they were recorded; others have one input, and enter the kernel for the rest.

use super::calls::RecordedCall;
use super::files::{Files, OpenFile};
use super::recorded::{RecordedProgram, SegmentKind, Step};
use super::shadow::Shadow;
use crate::kit::{CallError, OutcomeCell, named};
use pageferry_hal::{Access, PAGE_SHIFT, PAGE_SIZE, Prot, Reference, Va};
use pageferry_kernel::{Errno, Fd, OpenFlags, User};
use pageferry_model::Model;
use pageferry_vm::{Inherit, MapAddr};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes of a line.
const LINE_BYTES: usize = 32;

/// References that are made between two looks for interrupts: some 3,000 instructions.
const BATCH: usize = 256;

/// The bytes on their way through a pipe, as the host knows them.
pub(super) type Wire = Rc<RefCell<VecDeque<u8>>>;

/// Where a process reads from, and writes to.
#[derive(Clone, Default)]
pub(super) struct Ends {
    pub(super) input: Option<Fd>,
    pub(super) output: Option<Fd>,
    pub(super) input_wire: Option<Wire>,
    pub(super) output_wire: Option<Wire>,
}

/// What a program asks for that its parent's workload has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// A pipe.
    Pipe,
    /// A child: this many it has already.
    Fork(usize),
}

/// How the program goes on then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Goes,
    /// It ends, once its children have.
    Ends,
}

/// Does what a program asks for.
pub(super) type Children = Box<dyn FnMut(&User<Model>, Request) -> Result<Next, CallError>>;

/// A name that nothing has.
const NO_NAME: &str = "no-such-file";

/// One recorded program in a process.
pub(super) struct Replay<'a> {
    model: &'a Model,
    user: &'a User<Model>,
    cell: &'a OutcomeCell,
    recorded: Arc<RecordedProgram>,
    ends: Ends,
    files: Option<Files>,
    children: Option<Children>,
    /// Children that it has had, and those of them that it waited for.
    forked: usize,
    waited: usize,
    shadow: Shadow,
    /// Where the heap ends.
    at_break: Option<Va>,
    next_word: u32,
}

impl<'a> Replay<'a> {
    pub(super) fn new(
        model: &'a Model,
        user: &'a User<Model>,
        cell: &'a OutcomeCell,
        recorded: Arc<RecordedProgram>,
        ends: Ends,
    ) -> Replay<'a> {
        let next_word = (user.pid().0 << 24) | 1;
        Replay {
            model,
            user,
            cell,
            recorded,
            ends,
            files: None,
            children: None,
            forked: 0,
            waited: 0,
            shadow: Shadow::default(),
            at_break: None,
            next_word,
        }
    }

    /// Of a program that has these files, and whose children `children` makes.
    pub(super) fn with_files(mut self, files: Files, children: Option<Children>) -> Replay<'a> {
        (self.files, self.children) = (Some(files), children);
        self
    }

    /// Maps the program, and runs it to its end.
    pub(super) fn run(mut self) -> Result<(), CallError> {
        if self.files.is_some() {
            self.exec()?;
        } else {
            self.map_segments()?;
        }
        let recorded = self.recorded.clone();
        let mut calls = recorded.calls.iter();
        let mut done = recorded.records.len();
        let mut batch = Vec::with_capacity(BATCH);
        let mut instructions = 0;
        for (i, record) in recorded.records.iter().enumerate() {
            instructions += record.instructions();
            match record.step() {
                Step::To(access, at) => {
                    if access == Access::Write {
                        self.next_word = self.next_word.wrapping_add(1);
                    }
                    let word = self.next_word;
                    batch.push(Reference {
                        instructions: std::mem::take(&mut instructions),
                        access,
                        at,
                        word,
                    });
                    if batch.len() == BATCH {
                        self.refer(&mut batch)?;
                    }
                }
                Step::Call => {
                    self.refer(&mut batch)?;
                    self.user.compute(pageferry_hal::Instructions(std::mem::take(&mut instructions)));
                    let asked = calls.next().copied().unwrap_or(RecordedCall::Other);
                    if asked == RecordedCall::Exit || self.ask(asked)? == Next::Ends {
                        done = i + 1;
                        break;
                    }
                }
            }
        }
        self.refer(&mut batch)?;
        if let Some(files) = &self.files {
            let made = recorded.references * done as u64 / recorded.records.len().max(1) as u64;
            files.tree.references.set(files.tree.references.get() + made);
        }
        while self.waited < self.forked {
            self.wait()?;
        }
        self.end()
    }

    /// Makes the references of a batch, and looks at what the loads have found.
    fn refer(&mut self, batch: &mut Vec<Reference>) -> Result<(), CallError> {
        self.user.refer(batch);
        if self.user.is_killed() {
            return Err(("refer to what nothing maps", Errno::Fault));
        }
        for reference in batch.drain(..) {
            match reference.access {
                Access::Write => *self.shadow.word(reference.at) = reference.word,
                Access::Read => {
                    let expected = *self.shadow.word(reference.at);
                    if reference.word != expected {
                        let (at, found, name) = (reference.at, reference.word, &self.recorded.name);
                        let fault = format!(
                            "{name}: a load at {at:?} finds {found:#x} where {expected:#x} was stored"
                        );
                        self.cell.borrow_mut().damage(fault);
                    }
                }
                Access::Fetch => {}
            }
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------- memory

    fn map_segments(&mut self) -> Result<(), CallError> {
        let recorded = self.recorded.clone();
        let base = recorded.base();
        let file = match recorded.file_bytes() {
            0 => None,
            _ => Some(self.user.open(&recorded.program, OpenFlags::READ).map_err(named("open the program"))?),
        };
        for segment in &recorded.segments {
            let (place, len) = (MapAddr::Replace(segment.at), segment.len_bytes);
            let mapped = match (segment.kind, file) {
                (SegmentKind::Text, Some(file)) => {
                    let offset = (segment.at - base) as u64;
                    self.user.map_file(file, offset, place, len, Prot::READ | Prot::EXECUTE, false)
                }
                (SegmentKind::Data, Some(file)) => {
                    let offset = (segment.at - base) as u64;
                    self.user.map_file(file, offset, place, len, Prot::all(), false)
                }
                // Perhaps executed, too: a trace without system calls does not tell what is text.
                _ => self.user.map_at(place, len, Prot::all(), Inherit::Copy),
            };
            mapped.map_err(named("map the program"))?;
            if segment.kind != SegmentKind::Anonymous {
                let range = segment.at.0 >> PAGE_SHIFT..(segment.at + len).0 >> PAGE_SHIFT;
                let pages = recorded.pages.range(range).map(|page| (*page, page - (base.0 >> PAGE_SHIFT)));
                self.shadow.map_file(pages);
            }
        }
        match file {
            Some(file) => self.user.close(file).map_err(named("close the program")),
            None => Ok(()),
        }
    }

    /// Lets the program's image take the place of what is there, with a stack beside it.
    fn exec(&mut self) -> Result<(), CallError> {
        let recorded = self.recorded.clone();
        let Some(image) = self.files.as_ref().and_then(|files| files.image(&recorded.program)) else {
            return self.map_segments();
        };
        let file = self.user.open(&recorded.program, OpenFlags::READ).map_err(named("open the program"))?;
        self.user.exec(file).map_err(named("exec"))?;
        self.user.close(file).map_err(named("close the program"))?;
        let base = image.base.0 >> PAGE_SHIFT;
        for segment in &recorded.segments {
            if segment.kind == SegmentKind::Anonymous {
                let place = MapAddr::Replace(segment.at);
                let mapped = self.user.map_at(place, segment.len_bytes, Prot::all(), Inherit::Copy);
                mapped.map_err(named("map a stack"))?;
            } else {
                let range = segment.at.0 >> PAGE_SHIFT..(segment.at + segment.len_bytes).0 >> PAGE_SHIFT;
                self.shadow.map_file(recorded.pages.range(range).map(|page| (*page, page - base)));
            }
        }
        for (at, word) in image.header().chunks(LINE_BYTES).enumerate() {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            *self.shadow.word(image.base + at * LINE_BYTES) = word;
        }
        Ok(())
    }

    fn map(&mut self, at: Va, len_bytes: usize) -> Result<(), CallError> {
        let start = Va(at.0 & !(PAGE_SIZE as u64 - 1));
        let len = (at + len_bytes - start).next_multiple_of(PAGE_SIZE);
        self.shadow.clear(start, len);
        let place = MapAddr::Replace(start);
        // Perhaps executed, too: libraries are mapped so.
        self.user.map_at(place, len, Prot::all(), Inherit::Copy).map_err(named("map memory")).map(|_| ())
    }

    // ------------------------------------------------------------------------------------------- system calls

    fn ask(&mut self, asked: RecordedCall) -> Result<Next, CallError> {
        match asked {
            RecordedCall::Read { fd, to, len_bytes } => match self.open_file(fd) {
                Some(file) => self.read_file(&file, to, len_bytes),
                None => self.read(to, len_bytes),
            },
            RecordedCall::Write { fd, from, len_bytes } => match self.open_file(fd) {
                Some(file) => self.write_file(&file, from, len_bytes),
                None => self.write(from, len_bytes),
            },
            RecordedCall::Break(at) => self.set_break(at),
            RecordedCall::Map { at, len_bytes } if len_bytes > 0 => self.map(at, len_bytes),
            RecordedCall::Unmap { at, len_bytes } if len_bytes > 0 => {
                self.shadow.clear(at, len_bytes);
                self.user.unmap(at, len_bytes.next_multiple_of(PAGE_SIZE)).map_err(named("unmap"))
            }
            RecordedCall::Pipe => return self.ask_parent(Request::Pipe),
            RecordedCall::Fork if self.children.is_some() => {
                self.forked += 1;
                return self.ask_parent(Request::Fork(self.forked - 1));
            }
            RecordedCall::Wait if self.waited < self.forked => self.wait(),
            _ if self.files.is_some() => self.ask_of_files(asked),
            _ => self.enter(),
        }
        .map(|()| Next::Goes)
    }

    /// Enters the kernel, and leaves it.
    fn enter(&self) -> Result<(), CallError> {
        self.user.null_call().map_err(named("enter the kernel"))
    }

    fn ask_parent(&mut self, asked: Request) -> Result<Next, CallError> {
        match &mut self.children {
            Some(children) => children(self.user, asked),
            None => self.enter().map(|()| Next::Goes),
        }
    }

    fn wait(&mut self) -> Result<(), CallError> {
        self.waited += 1;
        self.user.wait().map(drop).map_err(named("wait"))
    }

    // ------------------------------------------------------------------------------------------- files of its own

    fn open_file(&self, fd: u32) -> Option<Rc<OpenFile>> {
        self.files.as_ref()?.open.get(&fd).cloned()
    }

    fn ask_of_files(&mut self, asked: RecordedCall) -> Result<(), CallError> {
        let Some(files) = &mut self.files else { return self.enter() };
        match asked {
            RecordedCall::Open { fd, creates, reads_bytes } => {
                let Some(name) = files.next_name(creates, reads_bytes) else { return self.enter() };
                let made = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
                let flags = if creates { made } else { OpenFlags::READ };
                let opened = self.user.open(&name, flags).map_err(named("open a file"))?;
                if creates {
                    files.tree.bytes.borrow_mut().insert(name.clone(), Vec::new());
                }
                files.open.insert(fd, Rc::new(OpenFile { fd: opened, name, at: Cell::new(0) }));
                Ok(())
            }
            RecordedCall::Absent => match self.user.stat(NO_NAME) {
                Err(Errno::NoFile) => Ok(()),
                Err(errno) => Err(("look for what is not there", errno)),
                Ok(_) => Err(("look for what is not there", Errno::Exists)),
            },
            RecordedCall::Stat => {
                self.user.stat(&self.recorded.program).map(drop).map_err(named("look at a file"))
            }
            RecordedCall::Close { fd } => match files.open.remove(&fd).and_then(Rc::into_inner) {
                Some(file) => self.user.close(file.fd).map_err(named("close a file")),
                None => self.enter(),
            },
            RecordedCall::Duplicate { from, to } => {
                if let Some(file) = files.open.get(&from).cloned() {
                    files.open.insert(to, file);
                }
                self.enter()
            }
            RecordedCall::Unlink => match files.output() {
                Some(name) if files.tree.bytes.borrow_mut().remove(&name).is_some() => {
                    self.user.unlink(&name).map_err(named("unlink"))
                }
                _ => self.enter(),
            },
            _ => self.enter(),
        }
    }

    /// Reads on; at the file's end from its beginning again, since where the recorded program went is not known.
    fn read_file(&mut self, file: &OpenFile, to: Va, len_bytes: usize) -> Result<(), CallError> {
        let mut done = 0;
        while done < len_bytes {
            let n = self.user.read(file.fd, to + done, len_bytes - done).map_err(named("read a file"))?;
            if n == 0 && file.at.replace(0) == 0 {
                break;
            }
            if n == 0 {
                self.user.seek(file.fd, 0).map_err(named("seek"))?;
                continue;
            }
            self.compare_file(file, to + done, n);
            file.at.set(file.at.get() + n);
            done += n;
        }
        let model = self.model;
        self.shadow.take_over(to, len_bytes, |at| peek_word(model, at));
        Ok(())
    }

    /// What was read of a file is what was written there.
    fn compare_file(&self, file: &OpenFile, at: Va, len_bytes: usize) {
        let Some(files) = &self.files else { return };
        let mut found = vec![0; len_bytes];
        self.model.peek(at, &mut found);
        let all = files.tree.bytes.borrow();
        let expected = all.get(&file.name).and_then(|b| b.get(file.at.get()..file.at.get() + len_bytes));
        if expected != Some(&found[..]) {
            let (name, file) = (&self.recorded.name, &file.name);
            let fault = format!("{name}: what it reads of {file} is not what was written there");
            self.cell.borrow_mut().damage(fault);
        }
    }

    fn write_file(&self, file: &OpenFile, from: Va, len_bytes: usize) -> Result<(), CallError> {
        let bytes = self.bytes_at(from, len_bytes);
        if let Some(files) = &self.files {
            let mut all = files.tree.bytes.borrow_mut();
            let (whole, at) = (all.entry(file.name.clone()).or_default(), file.at.get());
            whole.resize(whole.len().max(at + len_bytes), 0);
            whole[at..at + len_bytes].copy_from_slice(&bytes);
        }
        file.at.set(file.at.get() + len_bytes);
        let mut done = 0;
        while done < len_bytes {
            done += self.user.write(file.fd, from + done, len_bytes - done).map_err(named("write a file"))?;
        }
        Ok(())
    }

    /// What is in its memory there.
    fn bytes_at(&self, from: Va, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        if !self.model.peek(from, &mut bytes) {
            // Touched first, as the program did that made them.
            let mut word = [0; 1];
            (0..len_bytes).step_by(PAGE_SIZE).for_each(|i| self.user.load(from + i, &mut word));
            self.user.load(from + (len_bytes - 1), &mut word);
            self.model.peek(from, &mut bytes);
        }
        bytes
    }

    // ------------------------------------------------------------------------------------------- one input

    fn set_break(&mut self, at: Va) -> Result<(), CallError> {
        let page_end = |at: Va| Va(at.0.next_multiple_of(PAGE_SIZE as u64));
        match self.at_break.replace(at) {
            // The rest of the page that it begins in is the program's own.
            Some(before) if page_end(at) > page_end(before) => {
                self.map(page_end(before), page_end(at) - page_end(before))
            }
            _ => self.user.null_call().map_err(named("enter the kernel")),
        }
    }

    fn read(&mut self, to: Va, len_bytes: usize) -> Result<(), CallError> {
        let Some(input) = self.ends.input else { return self.user.null_call().map_err(named("read")) };
        let mut done = 0;
        let mut rewound = false;
        while done < len_bytes {
            let n = self.user.read(input, to + done, len_bytes - done).map_err(named("read"))?;
            if n == 0 && (self.ends.input_wire.is_some() || rewound) {
                break;
            }
            if n == 0 {
                // The file was read to its end: it is read again.
                self.user.seek(input, 0).map_err(named("seek"))?;
                rewound = true;
                continue;
            }
            rewound = false;
            self.arrived(to + done, n);
            done += n;
        }
        let model = self.model;
        self.shadow.take_over(to, len_bytes, |at| peek_word(model, at));
        Ok(())
    }

    /// Bytes have come through the pipe: those that went into it.
    fn arrived(&self, at: Va, len_bytes: usize) {
        let Some(wire) = &self.ends.input_wire else { return };
        let mut found = vec![0; len_bytes];
        self.model.peek(at, &mut found);
        let mut wire = wire.borrow_mut();
        let differs = found.iter().any(|byte| wire.pop_front() != Some(*byte));
        if differs {
            self.cell
                .borrow_mut()
                .damage(format!("{}: what came through a pipe is not what went in", self.recorded.name));
        }
    }

    fn write(&mut self, from: Va, len_bytes: usize) -> Result<(), CallError> {
        let Some(output) = self.ends.output else {
            return match self.files {
                Some(_) => self.user.print(from, len_bytes).map(drop).map_err(named("print")),
                None => self.user.null_call().map_err(named("write")),
            };
        };
        if let Some(wire) = self.ends.output_wire.as_ref().filter(|_| len_bytes > 0) {
            // What the reader must find: it may read before the call is over.
            let bytes = self.bytes_at(from, len_bytes);
            wire.borrow_mut().extend(bytes);
        }
        let mut done = 0;
        while done < len_bytes {
            done += self.user.write(output, from + done, len_bytes - done).map_err(named("write"))?;
        }
        Ok(())
    }

    /// Reads what is left of its input, so that its writer comes to its end, and closes both.
    fn end(&mut self) -> Result<(), CallError> {
        if let Some(input) = self.ends.input {
            if self.ends.input_wire.is_some() {
                let at = self.user.map(PAGE_SIZE, Prot::RW, Inherit::Copy).map_err(named("map"))?;
                loop {
                    let n = self.user.read(input, at, PAGE_SIZE).map_err(named("read"))?;
                    if n == 0 {
                        break;
                    }
                    self.arrived(at, n);
                }
            }
            self.user.close(input).map_err(named("close"))?;
        }
        if let Some(output) = self.ends.output {
            self.user.close(output).map_err(named("close"))?;
        }
        Ok(())
    }
}

fn peek_word(model: &Model, at: Va) -> u32 {
    let mut bytes = [0; 4];
    model.peek(at, &mut bytes);
    u32::from_le_bytes(bytes)
}
