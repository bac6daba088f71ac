//! Files: a private mapping, and reading by page transfer.

use super::stage::{Mechanism, Stage, contents, look_at};
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::{Fd, OpenFlags, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use pageferry_vm::MapAddr;

pub(super) const ALL: &[Mechanism] = &[PROMOTION, FILE_TRANSFER];

const PROMOTION: Mechanism = Mechanism {
    name: "promotion",
    title: "a private mapping of a file: a page that is written is promoted to an anon",
    text: "A private mapping has two layers: the file's object below, and above it an amap for what the process has \
           changed. A page is read from the object; the first write copies it into a new anon in the upper layer, and \
           the file never sees it.",
    source: "UVM paper, 3.1",
    machine: "pentium-iii",
    kernel: "uvm",
    set: &[],
    counterexample: None,
    more: None,
    far_end: false,
    program: promotion,
};

const FILE_TRANSFER: Mechanism = Mechanism {
    name: "file-transfer",
    title: "a file read by page transfer: its pages are lent to the reader",
    text: "The pages of a file are in memory as pages of its object. Instead of copying them to the reader, the object \
           lends each to an anon, and the anons take the place of those in the reader's buffer. The reader has \
           ordinary memory then: writing to it copies the page, and the file never sees it. No map entry is cut, as a \
           mapping would.",
    source: "UVM paper, 4.1.1 and 4.2.3",
    machine: "pentium-pro",
    kernel: "uvm",
    set: &[],
    counterexample: None,
    more: None,
    far_end: false,
    program: file_transfer,
};

const NAME: &str = "explained";
const PAGES: usize = 4;

fn promotion(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    with_file(stage, user, promoted)
}

fn file_transfer(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    with_file(stage, user, transferred)
}

/// Does `work` with a file of a few pages, which is removed then: files outlive their processes.
fn with_file(
    stage: &Stage,
    user: &User<Model>,
    work: fn(&Stage, &User<Model>, Fd) -> Result<(), CallError>,
) -> Result<(), CallError> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let fd = user.open(NAME, flags).map_err(named("open"))?;
    let from = stage.buffer(user, PAGES)?;
    user.write(fd, from, PAGES * PAGE_SIZE).map_err(named("write the file"))?;
    let result = work(stage, user, fd);
    user.close(fd).map_err(named("close"))?;
    user.unlink(NAME).map_err(named("unlink"))?;
    result
}

/// Reads the file again, by copy, and checks that it has not changed.
fn read_again(stage: &Stage, user: &User<Model>, fd: Fd, what: &'static str) -> Result<(), CallError> {
    let copy = stage.buffer(user, PAGES)?;
    user.seek(fd, 0).map_err(named("seek"))?;
    stage.step(what, || user.read(fd, copy, PAGES * PAGE_SIZE))?;
    stage.promise("the file has not changed", stage.holds(user, copy, &contents(PAGES)));
    Ok(())
}

fn transferred(stage: &Stage, user: &User<Model>, fd: Fd) -> Result<(), CallError> {
    let at = stage.buffer(user, PAGES)?;
    read_again(stage, user, fd, "A file of four pages, in memory, is read by copy: every byte moves.")?;
    user.seek(fd, 0).map_err(named("seek"))?;
    let got = stage.step(
        "It is read by transfer: its pages are lent, and take the place of those in the buffer. No byte is copied.",
        || user.receive_transfer(fd, Some(at), PAGES * PAGE_SIZE),
    )?;
    stage.promise("all pages came on loan", got.lent_pages == PAGES);
    stage.promise("the buffer holds the file", stage.holds(user, at, &contents(PAGES)));
    stage.note(format!("the first page of the buffer: {}", stage.page(user, at)));
    stage.step("The process reads the buffer: the pages are mapped already.", || {
        look_at(user, at, PAGES);
        Ok(())
    })?;
    stage.step("It writes to the first page: one page is copied, for the writer.", || {
        user.store(at, &[1; 4]);
        Ok(())
    })?;
    stage.note(format!("the first page now: {}", stage.page(user, at)));
    read_again(stage, user, fd, "The file is read again, by copy.")
}

fn promoted(stage: &Stage, user: &User<Model>, fd: Fd) -> Result<(), CallError> {
    let at = stage
        .step("A file of four pages is mapped privately: an entry that refers to its object.", || {
            user.map_file(fd, 0, MapAddr::Anywhere, PAGES * PAGE_SIZE, Prot::RW, false)
        })?;
    stage.step(
        "The process reads all pages: each is mapped from the object's page, which is in memory.",
        || {
            look_at(user, at, PAGES);
            Ok(())
        },
    )?;
    let file = stage.model.inspect(|| user.frame_behind(at));
    stage.step(
        "It writes to the first page: the page is promoted, one page is copied into an anon.",
        || {
            user.store(at, &[1; 4]);
            Ok(())
        },
    )?;
    stage.promise("the page written is another frame", stage.model.inspect(|| user.frame_behind(at)) != file);
    stage.step("It writes there again: the anon is its own.", || {
        user.store(at, &[2; 4]);
        Ok(())
    })?;
    read_again(stage, user, fd, "It reads the file with a system call: the file is as it was.")
}
