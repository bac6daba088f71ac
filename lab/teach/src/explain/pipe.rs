//! A large write to a FreeBSD pipe: pages handed over instead of copied into a buffer.

use super::stage::{Mechanism, Stage, contents, look_at, map};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Errno, Fd, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;

pub(super) const ALL: &[Mechanism] = &[Mechanism {
    name: "direct-pipe",
    title: "direct pipe write: the reader copies from the writer's own pages",
    text: "A small write is copied into the pipe's buffer and out of it. A large one wires the writer's pages and \
           hands them over; the writer sleeps until the reader has copied from them, once. The reader gets at them by \
           ephemeral mappings: a private one for each page, which mostly is in the cache.",
    source: "sf_buf paper, 5.1",
    machine: "xeon-up",
    kernel: "sf_buf",
    set: &[],
    counterexample: None,
    more: None,
    far_end: false,
    program: direct_pipe,
}];

const PAGES: usize = 16;
const BYTES: usize = PAGES * PAGE_SIZE;

fn direct_pipe(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (read, write) = user.pipe().map_err(named("pipe"))?;
    let at = stage.buffer(user, PAGES)?;
    stage.step(
        "The writer writes 4 KiB: they are copied into the pipe's buffer, and the call returns.",
        || user.write(write, at, PAGE_SIZE),
    )?;
    stage.other(user, "reader", move |stage, user| {
        let to = map(user, PAGES).map_err(named("map"))?;
        look_at(user, to, PAGES);
        let len = stage.step("The reader reads the 4 KiB: they are copied a second time.", || {
            user.read(read, to, BYTES)
        })?;
        stage.promise("4 KiB were read", len == PAGE_SIZE);
        Ok(())
    })?;
    stage.fork(user, "reader", move |stage, user| reader(stage, user, (read, write)))?;
    user.close(read).map_err(named("close"))?;
    let send = || user.write(write, at, BYTES).map_err(named("write"));
    // The pipe grows, and the mapping cache gets to know the pages.
    for _ in 0..2 {
        send()?;
    }
    user.yield_now().map_err(named("yield"))?;
    stage.begin();
    send()?;
    stage.end(
        "The reader maps page after page, hits all, and copies once. The writer wakes, unwires its pages and \
               returns.",
    );
    user.close(write).map_err(named("close"))?;
    user.wait().map_err(named("wait")).map(|_| ())
}

fn reader(stage: &Stage, user: &User<Model>, (read, write): (Fd, Fd)) -> Result<(), CallError> {
    user.close(write).map_err(named("close"))?;
    let to = map(user, PAGES).map_err(named("map"))?;
    let receive = || {
        let mut done = 0;
        while done < BYTES {
            match user.read(read, to + done, BYTES - done).map_err(named("read"))? {
                0 => return Err(("read to the end", Errno::BrokenPipe)),
                len => done += len,
            }
        }
        Ok(())
    };
    for _ in 0..2 {
        receive()?;
    }
    user.yield_now().map_err(named("yield"))?;
    stage.end("The writer writes 64 KiB: sixteen pages are wired and handed over, and it sleeps.");
    receive()?;
    stage.promise("what was read is what was written", stage.holds(user, to, &contents(PAGES)));
    Ok(())
}
