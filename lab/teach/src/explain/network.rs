//! Pages that go through the network: taken over from the card by a flip, and sent from a file while they stay its
//! pages.

use super::far_end::{PAGES as SENT, SINK, SOURCE};
use super::stage::{Comparison, Field, Mechanism, More, Ran, Stage, Table, Variant, contents, look_at, map};
use pageferry_hal::{Cycles, PAGE_SIZE, Prot, Va};
use pageferry_kernel::{Fd, OpenFlags, Polled, SendMode, Shutdown, SocketKind, User};
use pageferry_lab::LabError;
use pageferry_lab::files::LentMappingName;
use pageferry_lab::kit::stream_socket;
use pageferry_lab::kit::{CallError, named};
use pageferry_model::Model;
use pageferry_vm::Inherit;
use std::net::{Ipv4Addr, SocketAddrV4};

pub(super) const ALL: &[Mechanism] = &[
    Mechanism {
        name: "flip",
        title: "receiving by page flip: the card's page becomes the receiver's",
        text: "The card puts the header of a frame into one buffer and its payload into another, which is a page of \
               its own. Where the payload fills a page and the receiver asks for a page on a page boundary, the page \
               takes the place of the one that the receiver had there: its frame goes, its translation goes, no byte \
               is copied. Everything else is copied.",
        source: "page-flip paper, 3 and 4",
        machine: "p4-flip",
        kernel: "linux-2.6",
        set: &["machine.nic.mtu_bytes=4148"],
        counterexample: None,
        more: None,
        far_end: true,
        program: flip,
    },
    Mechanism {
        name: "sendfile",
        title: "sendfile without a copy: the card reads the file's own pages",
        text: "The pages of the file are lent to the kernel and hang in mbufs until the other end has acknowledged \
               them. FreeBSD 5 gives each an address with the loan, by an ephemeral mapping that all CPUs share, since \
               any of them may send it again: a page of a file that is popular is in the mapping cache, and nothing is \
               invalidated. But a card that computes checksums reads frames and no addresses; a kernel that maps a \
               page only while it looks at it then maps none.",
        source: "sf_buf paper, 2.3 and 5.4",
        machine: "xeon-mp",
        kernel: "sf_buf",
        set: &[],
        counterexample: None,
        more: Some(&More { runs: RUNS, table }),
        far_end: true,
        program: send_file,
    },
];

const RUNS: &[Variant] = &[
    Variant {
        machine: "xeon-mp",
        set: &["kernel.socket.lent_mapping=pages"],
        words: Some("a page that is lent has an address all the time:"),
    },
    Variant {
        machine: "xeon-mp",
        set: &["kernel.socket.lent_mapping=while-read"],
        words: Some("it has one while the kernel looks at it:"),
    },
];

/// Sleeps until something can be received, which comes unless the mechanism is broken.
fn wait_for(user: &User<Model>, fd: Fd) -> Result<(), CallError> {
    user.poll(&mut [Polled::new(fd, true, false)], None).map_err(named("poll")).map(|_| ())
}

/// Lets the far end answer: some milliseconds, of any machine.
fn pause(user: &User<Model>) -> Result<(), CallError> {
    user.sleep_for(Cycles(100_000_000)).map_err(named("sleep"))
}

fn flip(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let sent = contents(SENT);
    let to = map(user, SENT).map_err(named("map"))?;
    user.store(to, &vec![1; SENT * PAGE_SIZE]);
    let fd = stream_socket(user, SENT * PAGE_SIZE)?;
    stage.begin();
    user.connect(fd, SOURCE).map_err(named("connect"))?;
    wait_for(user, fd)?;
    pause(user)?;
    stage.end(
        "It connects, and eight segments come: the card has put each payload into a page. No CPU has touched \
               it.",
    );
    let receive = |what: &'static str, at: Va, len: usize, sent: &[u8], flips: bool| {
        let old = stage.model.inspect(|| user.frame_behind(at));
        let got = stage.step(what, || user.receive_transfer(fd, Some(at), len))?;
        stage.promise("all was received that was asked for", got.len_bytes == len);
        stage.promise("what was received is what was sent", stage.holds(user, at, sent));
        let new = stage.model.inspect(|| user.frame_behind(at));
        stage.promise(
            "a page that is flipped is another one",
            !flips || (old != new && got.donated_pages == len / PAGE_SIZE),
        );
        let frame =
            |frame: Option<pageferry_hal::Pfn>| frame.map_or("none".to_owned(), |frame| frame.0.to_string());
        stage.note(format!("the frame behind the address: {} before, {} after", frame(old), frame(new)));
        Ok(())
    };
    let mut at = 0;
    let copied = stage.step("It receives a page by copy.", || user.receive(fd, to, PAGE_SIZE))?;
    stage.promise(
        "what was received is what was sent",
        copied == PAGE_SIZE && stage.holds(user, to, &sent[..PAGE_SIZE]),
    );
    at += PAGE_SIZE;
    let whole =
        "It receives two pages by flip: their frames take the place of the receiver's, which are freed.";
    receive(whole, to + at, 2 * PAGE_SIZE, &sent[at..at + 2 * PAGE_SIZE], true)?;
    at += 2 * PAGE_SIZE;
    stage.step(
        "It reads them: they are mapped already, and come from memory, where the card has put them.",
        || {
            look_at(user, to + (at - 2 * PAGE_SIZE), 2);
            Ok(())
        },
    )?;
    let part = "It asks for less than a page by flip: that is copied.";
    receive(part, to + at, 1000, &sent[at..at + 1000], false)?;
    at += 1000;
    let place = to + 6 * PAGE_SIZE;
    let within =
        "It asks for the rest of that page, at the beginning of one: what began within its page is copied.";
    receive(within, place, PAGE_SIZE - 1000, &sent[at..at + PAGE_SIZE - 1000], false)?;
    at += PAGE_SIZE - 1000;
    user.lock_memory(place, PAGE_SIZE).map_err(named("lock memory"))?;
    let locked = "A page of the receiver's that is locked stays where it is: the next is copied into it.";
    receive(locked, place, PAGE_SIZE, &sent[at..at + PAGE_SIZE], false)?;
    user.unlock_memory(place, PAGE_SIZE).map_err(named("unlock memory"))?;
    user.close(fd).map_err(named("close"))
}

const PAGES: usize = 4;
const BYTES: usize = PAGES * PAGE_SIZE;

fn send_file(stage: &Stage, user: &User<Model>) -> Result<(), CallError> {
    let at = stage.buffer(user, PAGES)?;
    let flags = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let file = user.open("file", flags).map_err(named("open"))?;
    user.write(file, at, BYTES).map_err(named("write"))?;
    let fd = stream_socket(user, 2 * BYTES)?;
    user.connect(fd, SINK).map_err(named("connect"))?;
    let sent = |what: &'static str, fd: Fd, mode: SendMode, name: &'static str| {
        stage.step(what, || user.send_file(fd, file, 0, BYTES, mode))?;
        stage.figure(name, stage.counted("ephemeral_hits") + stage.counted("ephemeral_misses"));
        Ok(())
    };
    let arrived = || {
        pause(user)?;
        stage.promise("the far end has the file", *stage.heard.borrow() == contents(PAGES));
        stage.heard.borrow_mut().clear();
        Ok(())
    };
    let copied = "It sends the file by copy: each page is mapped for a moment, and copied into the kernel.";
    sent(copied, fd, SendMode::Copy, "by copy")?;
    arrived()?;
    let lent = "It sends the file by loan: four pages hang in mbufs, and the card reads them where they are.";
    sent(lent, fd, SendMode::Loan, "to the card")?;
    arrived()?;
    user.close(fd).map_err(named("close"))?;

    let name = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
    let listening = user.socket(SocketKind::Stream).map_err(named("socket"))?;
    user.bind(listening, name).and_then(|()| user.listen(listening, 1)).map_err(named("listen"))?;
    let ours = stream_socket(user, 2 * BYTES)?;
    user.connect(ours, name).map_err(named("connect"))?;
    let (theirs, _) = user.accept(listening).map_err(named("accept"))?;
    let looped = "Over loopback, by loan: the CPU looks at every page, to compute the sums.";
    sent(looped, ours, SendMode::Loan, "over loopback")?;
    stage.begin();
    user.store(at, &[9; PAGE_SIZE]);
    user.seek(file, 0).map_err(named("seek"))?;
    user.write(file, at, PAGE_SIZE).map_err(named("write"))?;
    stage.end("It writes to the file's first page, which is out: the file gets another frame, what was sent stays as \
               it was.");
    user.shutdown(ours, Shutdown::Send).map_err(named("shutdown"))?;
    let to = user.map(BYTES, Prot::RW, Inherit::None).map_err(named("map"))?;
    look_at(user, to, PAGES);
    stage.begin();
    let mut done = 0;
    while done < BYTES {
        done += user.receive(theirs, to + done, BYTES - done).map_err(named("receive"))?;
    }
    stage.end("The receiver has what was in the file when it was sent; the loans end, and the frame that nothing else \
               has is freed.");
    stage.promise("what was received is what was sent", stage.holds(user, to, &contents(PAGES)));
    [ours, theirs, listening, file].into_iter().try_for_each(|fd| user.close(fd)).map_err(named("close"))
}

fn table(runs: &[Ran]) -> Result<Comparison, LabError> {
    let row = |ran: &Ran| {
        let mapping = match ran.kernel.file.socket.lent_mapping.value {
            LentMappingName::Run => "run",
            LentMappingName::Pages => "pages",
            LentMappingName::WhileRead => "while-read",
        };
        let figures = ["by copy", "to the card", "over loopback"];
        let mapped = figures.map(|name| Field::Number(ran.figures.get(name).copied().unwrap_or(0)));
        [Field::Word(ran.machine.name.clone()), Field::Word(mapping.to_owned())]
            .into_iter()
            .chain(mapped)
            .collect()
    };
    let table = Table {
        title: "ephemeral mappings made to send four pages".to_owned(),
        head: vec!["machine", "lent_mapping", "by copy", "by loan to the card", "by loan over loopback"],
        rows: runs.iter().map(row).collect(),
    };
    Ok((table, Vec::new()))
}
