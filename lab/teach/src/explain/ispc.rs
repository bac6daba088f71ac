//! Servers that are processes, and the TLB entries that attach memory to them.

use super::stage::{Mechanism, Stage, contents, look_at, map};
use pageferry_hal::{PAGE_SIZE, Va};
use pageferry_kernel::{Errno, User, Wait};
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "ispc",
        title: "communication by a common area: what is sent is attached to one process at a time",
        text: "In a microkernel a request goes from process to process, and its data with it. The communication area \
               lies at the same addresses in every space; pieces of it are detached from the sender and attached to \
               the receiver. By the proposed method an application's page is attached by a reserved TLB entry and by \
               nothing else, and a server sees all of the area by one entry of a large page: it never misses there, \
               and nothing is attached to it. A miss in the area is the protection fault. The price is that a server \
               can destroy whatever is in the area (2.3).",
        source: "SH-4 paper, 2.3 and 3",
        machine: "sh7751r",
        kernel: "ant",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: ispc,
    },
    Mechanism {
        name: "reserved-entries",
        title: "reserved TLB entries: what no refill takes, and no flush drops",
        text: "Where the kernel loads the TLB it can keep entries for itself. Those that are reserved are written one \
               by one; refills take the others, unused ones first, then one that hardware's counter names. When all \
               reserved entries are in use, a caller waits or is told: nothing is attached in another way behind its \
               back.",
        source: "SH-4 paper, 2.3 and 3.2",
        machine: "sh7751r",
        kernel: "ant",
        set: &[],
        counterexample: None,
        more: None,
        far_end: false,
        program: reserved,
    },
];

const SERVICE: u32 = 1;
/// What is in the control piece of a request; of the last with data an address.
const ASKED: [u8; 8] = [1; 8];

/// A step, with the misses of the TLB for data in it.
fn counted<R>(
    stage: &Stage,
    what: &'static str,
    call: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, CallError> {
    let before = stage.model.snapshot();
    let done = stage.step(what, call)?;
    stage.count("tlb_misses", stage.model.snapshot().since(&before).hardware.tlb_misses);
    Ok(done)
}

fn ispc(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let (from, to) = user.pipe().map_err(named("pipe"))?;
    let server = stage.fork(user, "server", serve)?;
    user.yield_now().map_err(named("yield"))?;
    let control = counted(
        stage,
        "An application gets a piece of the area for its requests: a reserved entry is written, and no table.",
        || user.ica_alloc(1, Wait::Yes),
    )?;
    let data = counted(stage, "And one for its data.", || user.ica_alloc(1, Wait::Yes))?;
    counted(stage, "It fills them: no miss, as the entries were there at once.", || {
        user.store(control, &ASKED);
        user.store(data, &contents(1));
        Ok(())
    })?;
    stage.begin();
    user.ispc_post(SERVICE, control, Some(data)).map_err(named("make a request"))?;
    counted(
        stage,
        "The server has answered. Before the application takes the answer it gives the data to a system call: the \
         piece is on its way, the miss is the protection fault, and no byte is read.",
        || match user.write(to, data, 1) {
            Err(Errno::Fault) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Errno::Access),
        },
    )?;
    let done =
        counted(stage, "It takes the answer: two entries are written.", || user.ispc_result(Wait::Yes))?;
    stage.promise("the request was answered", done.outcome.is_ok());
    let mut first = [0; 4];
    user.load(data, &mut first);
    stage.promise("the data is what the server has written", first == [9; 4]);
    let kept = user.ica_alloc(1, Wait::Yes).map_err(named("allocate a piece"))?;
    user.store(kept, &contents(1));
    user.store(control, &kept.0.to_le_bytes());
    user.ispc_request(SERVICE, control, Some(data), Wait::Yes).map_err(named("make a request"))?;
    user.load(kept, &mut first);
    stage.promise("the server has destroyed what it was not given", first == [7; 4]);
    user.ica_free(kept).map_err(named("free a piece"))?;
    user.store(control, &[0; 8]);
    user.ispc_request(SERVICE, control, None, Wait::Yes).map_err(named("end the server"))?;
    [from, to].into_iter().try_for_each(|fd| user.close(fd)).map_err(named("close"))?;
    let ended = user.wait().map_err(named("wait"))?;
    stage.promise("the server has ended", ended == server);
    Ok(())
}

fn serve(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    counted(
        stage,
        "A process becomes a server: one entry shows it all of the area, a page of 1 MB.",
        || user.ispc_serve(SERVICE),
    )?;
    loop {
        let request = user.ispc_receive(Wait::Yes).map_err(named("receive"))?;
        let mut asked = [0; 8];
        let Some((data, _)) = request.data else {
            user.load(request.control, &mut asked);
            return user.ispc_return(request.id).map_err(named("return"));
        };
        user.load(request.control, &mut asked);
        if asked != ASKED {
            counted(
                stage,
                "The price: a server that goes wrong stores to a piece that the application has kept. It sees all of \
                 the area, so nothing stops it (by the method `previous` it would be killed).",
                || {
                    user.store(Va(u64::from_le_bytes(asked)), &[7; 4]);
                    user.ispc_return(request.id)
                },
            )?;
            continue;
        }
        stage.end("The application makes a request: two entries are cleared, the server wakes, and takes it from its \
                   queue.");
        counted(
            stage,
            "The server reads the request and changes the data: it never misses in the area.",
            || {
                user.load(request.control, &mut asked);
                user.store(data, &[9; 4]);
                Ok(())
            },
        )?;
        counted(stage, "It answers: nothing was attached to it, and nothing is detached.", || {
            user.ispc_return(request.id)
        })?;
    }
}

fn reserved(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let reserved = user.kernel().vm().pmaps().reserved_entries();
    let pages = 2 * stage.tlb_entries;
    let at = map(user, pages).map_err(named("map a buffer"))?;
    for page in 0..pages {
        user.store(at + page * PAGE_SIZE, &[1; 4]);
    }
    let piece = counted(stage, "A process gets a piece of the area: a reserved entry is written.", || {
        user.ica_alloc(1, Wait::Yes)
    })?;
    stage.note(format!("{reserved} entries of {} are reserved", stage.tlb_entries));
    counted(
        stage,
        "It goes over twice as many pages as the TLB has entries: refills take all that are not reserved.",
        || {
            look_at(user, at, pages);
            Ok(())
        },
    )?;
    counted(stage, "It stores to the piece: its entry is still there.", || {
        user.store(piece, &[1; 4]);
        Ok(())
    })?;
    counted(stage, "It unmaps its pages, so many that all of its address space is flushed.", || {
        user.unmap(at, pages * PAGE_SIZE)
    })?;
    counted(stage, "It stores to the piece again: a flush spares what is reserved.", || {
        user.store(piece, &[1; 4]);
        Ok(())
    })?;
    let mut pieces: Vec<Va> = vec![piece];
    counted(
        stage,
        "It asks for more pieces, and does not want to wait: it is told when no entry is left.",
        || loop {
            match user.ica_alloc(1, Wait::No) {
                Ok(at) => pieces.push(at),
                Err(Errno::WouldBlock) => return Ok(()),
                Err(error) => return Err(error),
            }
        },
    )?;
    stage.note(format!("it has {} pieces; the other reserved entries are servers'", pieces.len()));
    stage.promise("some entries are servers'", pieces.len() < reserved);
    pieces.into_iter().try_for_each(|at| user.ica_free(at)).map_err(named("free a piece"))
}
