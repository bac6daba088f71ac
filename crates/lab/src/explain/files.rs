//! Memory with a file behind it: promotion.

use super::{Mechanism, Stage, contents, look_at};
use crate::workload::{Failed, named};
use pageferry_hal::{PAGE_SIZE, Prot};
use pageferry_kernel::{OpenFlags, User};
use pageferry_model::Model;
use pageferry_vm::Place;

pub(super) const ALL: &[Mechanism] = &[Mechanism {
    name: "promotion",
    title: "a private mapping of a file: a page that is written is promoted to an anon",
    text: "A private mapping has two layers: the file's object below, and above it an amap for what the process has \
           changed. A page is read from the object; the first write copies it into a new anon in the upper layer, and the \
           file never sees it.",
    source: "UVM paper, 3.1",
    machine: "pentium-iii",
    kernel: "uvm",
    set: &[],
    program: promotion,
}];

const NAME: &str = "explained";

fn promotion(stage: &Stage, user: &User<Model>) -> Result<(), Failed> {
    const PAGES: usize = 4;
    let result = on_file(stage, user, PAGES);
    // Files outlive their processes.
    user.unlink(NAME).map_err(named("unlink"))?;
    result
}

fn on_file(stage: &Stage, user: &User<Model>, pages: usize) -> Result<(), Failed> {
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let fd = user.open(NAME, flags).map_err(named("open"))?;
    let from = stage.buffer(user, pages)?;
    user.write(fd, from, pages * PAGE_SIZE).map_err(named("write the file"))?;
    let at = stage
        .step("A file of four pages is mapped privately: an entry that refers to its object.", || {
            user.map_file(fd, 0, Place::Anywhere, pages * PAGE_SIZE, Prot::RW, false)
        })?;
    stage.step(
        "The process reads all pages: each is mapped from the object's page, which is in memory.",
        || {
            look_at(user, at, pages);
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
    let copy = stage.buffer(user, pages)?;
    user.seek(fd, 0).map_err(named("seek"))?;
    stage.step("It reads the file with a system call: the file is as it was.", || {
        user.read(fd, copy, pages * PAGE_SIZE)
    })?;
    stage.promise("the file has not changed", stage.holds(user, copy, &contents(pages)));
    user.close(fd).map_err(named("close"))
}
