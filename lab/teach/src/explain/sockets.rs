//! What goes through a socket: by copy, by loan, by transfer; and what the receiver does with it afterwards.

use super::stage::{Mechanism, Stage, contents, look_at, map, times};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Fd, SendMode, User};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;

const PAGES: usize = 4;
const BYTES: usize = PAGES * PAGE_SIZE;

/// A sender of all pages does not have to wait.
const ROOM: &[&str] = &["kernel.socket.high_water_bytes=65536"];

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "copy",
        title: "send and receive by copy: every byte moves twice",
        text: "The kernel copies what is sent into clusters of mbufs, and from there into the receiver's buffer. \
               Nothing is mapped, protected or invalidated: for little data, and for data that is in the cache, that \
               is hard to beat.",
        source: "UVM paper, 5.1 to 5.3",
        machine: "pentium-pro",
        kernel: "uvm",
        set: ROOM,
        counterexample: None,
        more: None,
        far_end: false,
        program: copy,
    },
    Mechanism {
        name: "loan",
        title: "page loanout: the sender lends its pages and may go on using them",
        text: "The sender's pages are wired and write-protected, and the kernel uses them where they are: the send \
               copies nothing. Who writes to a page on loan breaks the loan for that page: the writer gets a copy, and \
               the frame is left to the borrower, an orphan that is freed when the loan ends.",
        source: "UVM paper, 4.1 and 5.1",
        machine: "pentium-pro",
        kernel: "uvm",
        set: ROOM,
        counterexample: None,
        more: None,
        far_end: false,
        program: loan,
    },
    Mechanism {
        name: "transfer",
        title: "page transfer: the kernel's pages become the receiver's memory",
        text: "Pages that the kernel has filled are given to the receiver as anonymous memory instead of being copied: \
               to an address that it names, or into the transfer area of its map, where amaps wait for them.",
        source: "UVM paper, 4.2 and 5.2",
        machine: "pentium-pro",
        kernel: "uvm",
        set: ROOM,
        counterexample: None,
        more: None,
        far_end: false,
        program: transfer,
    },
    Mechanism {
        name: "anflush",
        title: "giving back what was transferred, and keeping the place for the next",
        text: "What arrives by transfer has to go when it has been read. munmap would take the map entry and its amap \
               along; anflush frees the anons alone, so that the next transfer finds a place that is ready.",
        source: "UVM paper, 4.2.2",
        machine: "pentium-pro",
        kernel: "uvm",
        set: ROOM,
        counterexample: None,
        more: None,
        far_end: false,
        program: anflush,
    },
];

/// Receives all that was sent, by copy, and checks it.
fn receive(stage: &Stage, user: &User<Model>, from: Fd, at: pageferry_hal::Va) -> Result<(), CallError> {
    let mut done = 0;
    while done < BYTES {
        done += user.receive(from, at + done, BYTES - done).map_err(named("receive"))?;
    }
    stage.promise("what was received is what was sent", stage.holds(user, at, &contents(PAGES)));
    Ok(())
}

fn copy(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (ours, theirs) = user.socket_pair().map_err(named("socket pair"))?;
    let at = stage.buffer(user, PAGES)?;
    stage.step("The sender sends four pages: they are copied into four clusters.", || {
        user.send(ours, at, BYTES, SendMode::Copy)
    })?;
    stage.note(format!("the sender's page: {}", stage.page(user, at)));
    stage.step("It writes to its buffer: no fault, the data has left.", || {
        user.store(at, &[1; 4]);
        Ok(())
    })?;
    stage.other(user, "receiver", move |stage, user| {
        let to = map(user, PAGES).map_err(named("map"))?;
        look_at(user, to, PAGES);
        stage.begin();
        receive(stage, user, theirs, to)?;
        stage.end("The receiver receives: the four pages are copied again, and the clusters are free.");
        Ok(())
    })
}

fn loan(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (ours, theirs) = user.socket_pair().map_err(named("socket pair"))?;
    let at = stage.buffer(user, PAGES)?;
    stage.step(
        "The sender sends four pages by loan: they are wired and write-protected, no byte is copied.",
        || user.send(ours, at, BYTES, SendMode::Loan),
    )?;
    stage.note(format!("the first page: {}", stage.page(user, at)));
    stage.step("It reads its buffer: no fault, the pages are still its own.", || {
        look_at(user, at, PAGES);
        Ok(())
    })?;
    let lent = stage.model.inspect(|| user.frame_behind(at));
    stage.step(
        "It writes to the first page: a fault breaks the loan, one page is copied for the writer.",
        || {
            user.store(at, &[1; 4]);
            Ok(())
        },
    )?;
    stage.note(format!("the page now behind the address: {}", stage.page(user, at)));
    stage.promise("the writer has another frame", stage.model.inspect(|| user.frame_behind(at)) != lent);
    if let Some(frame) = lent {
        let info = stage.model.inspect(|| user.kernel().vm().frame_info(frame));
        stage.note(format!("the frame that was lent: {:?}, on loan {}", info.state, times(info.loan_count)));
    }
    stage.other(user, "receiver", move |stage, user| {
        let to = map(user, PAGES).map_err(named("map"))?;
        look_at(user, to, PAGES);
        stage.begin();
        receive(stage, user, theirs, to)?;
        stage.end("The receiver receives by copy what was sent; the loans end, and the orphan is freed.");
        Ok(())
    })?;
    stage.note(format!("the sender's second page: {}", stage.page(user, at + PAGE_SIZE)));
    stage.step(
        "The sender writes to the second page: its loan is over, the fault only permits the write.",
        || {
            user.store(at + PAGE_SIZE, &[2; 4]);
            Ok(())
        },
    )
}

fn transfer(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (ours, theirs) = user.socket_pair().map_err(named("socket pair"))?;
    let at = stage.buffer(user, PAGES)?;
    stage.step("The sender sends four pages by copy: they are in four clusters of the kernel's.", || {
        user.send(ours, at, BYTES, SendMode::Copy)
    })?;
    stage.other(user, "receiver", move |stage, user| {
        let got = stage.step(
            "The receiver receives by transfer: the clusters' pages become anons in its transfer area.",
            || user.receive_transfer(theirs, None, BYTES),
        )?;
        stage.note(format!("{} bytes at {:#x}", got.len_bytes, got.at.0));
        stage.promise("what was received is what was sent", stage.holds(user, got.at, &contents(PAGES)));
        stage.step("It reads all four: the pages are mapped when they are touched.", || {
            look_at(user, got.at, PAGES);
            Ok(())
        })?;
        stage.step("It writes to the first: the page is its own, nothing is copied.", || {
            user.store(got.at, &[1; 4]);
            Ok(())
        })?;
        stage.step("It is done with them: anflush frees the four frames.", || user.anflush(got.at, BYTES))
    })
}

fn anflush(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (ours, theirs) = user.socket_pair().map_err(named("socket pair"))?;
    let at = stage.buffer(user, PAGES)?;
    let send = move |user: &User<Model>| user.send(ours, at, BYTES, SendMode::Copy).map_err(named("send"));
    send(user)?;
    let first = stage
        .step("The first transfer makes an entry in the transfer area, and an amap for it.", || {
            user.receive_transfer(theirs, None, BYTES)
        })?;
    look_at(user, first.at, PAGES);
    stage.step("anflush unmaps and frees the four pages; entry and amap stay.", || {
        user.anflush(first.at, BYTES)
    })?;
    stage.note(format!("the place: {}", stage.page(user, first.at)));
    stage.step("The place reads as zero: a fault clears a page.", || {
        look_at(user, first.at, 1);
        Ok(())
    })?;
    user.anflush(first.at, BYTES).map_err(named("anflush"))?;
    send(user)?;
    let second =
        stage.step("The second transfer finds the place.", || user.receive_transfer(theirs, None, BYTES))?;
    stage.note(format!("at {:#x}, the first was at {:#x}", second.at.0, first.at.0));
    stage.promise("what was received is what was sent", stage.holds(user, second.at, &contents(PAGES)));
    look_at(user, second.at, PAGES);
    stage.step("With munmap instead, entry and amap go as well.", || user.unmap(second.at, BYTES))
}
