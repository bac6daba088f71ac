//! Clients of `serve` that are many, slow, silent or gone: all others get every byte, all waits end, and so does the
//! server.

use crate::common::server::{Server, bytes, read_header};
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// More than the host's buffers take of a file that nobody reads.
const LARGE: usize = 6 << 20;

/// A directory with files of so many bytes, each named by them.
fn site(sizes: &[usize]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for &size in sizes {
        fs::write(dir.path().join(size.to_string()), bytes(size)).expect("written");
    }
    dir
}

fn get(stream: &mut TcpStream, size: usize) {
    write!(stream, "GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
}

/// Reads to the end of an answer with a file of so many bytes.
fn is_whole(stream: &mut TcpStream, size: usize) -> bool {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a header");
    answer[end + 4..] == bytes(size)
}

/// It ended as it should, whatever its clients did.
fn ends_well(server: Server) -> serde_json::Value {
    let (told, code) = server.interrupt();
    assert_eq!(code, Some(0), "{told}");
    serde_json::from_str(&told).expect("JSON")
}

#[test]
fn more_clients_than_there_is_room_for_are_all_served() {
    let dir = site(&[20_000]);
    let server = Server::start(dir.path(), &["--json"]);
    std::thread::scope(|scope| {
        for _ in 0..200 {
            scope.spawn(|| {
                let mut stream = server.connect();
                get(&mut stream, 20_000);
                assert!(is_whole(&mut stream, 20_000));
            });
        }
    });
    let told = ends_well(server);
    assert_eq!((&told["requests"]["200"], &told["cut_short"]), (&200.into(), &0.into()), "{told}");
}

#[test]
fn clients_that_stay_and_do_nothing_keep_nobody_out_for_ever() {
    let dir = site(&[100, LARGE]);
    // How many do something before they stay, and what.
    type Does = fn(&mut TcpStream);
    let kinds: [(&str, usize, Does); 4] = [
        ("says nothing", 0, |_| {}),
        ("takes nothing", 100, |stream| {
            set_socket_recv_buffer_size(&*stream, 4096).expect("set");
            get(stream, LARGE);
        }),
        ("does not close behind the end", 40, |stream| {
            get(stream, 100);
            assert!(is_whole(stream, 100));
        }),
        ("begins an upload", 40, |stream| {
            stream.write_all(b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc").expect("sent");
        }),
    ];
    std::thread::scope(|scope| {
        for (what, count, does) in kinds {
            let dir = dir.path();
            scope.spawn(move || {
                let server = Server::start(dir, &["--json"]);
                // Three times as many as there are processes. Not all can say what they do before others are gone.
                let mut stay: Vec<TcpStream> = (0..150).map(|_| server.connect()).collect();
                stay.iter_mut().take(count).for_each(does);
                let mut stream = server.connect();
                get(&mut stream, 100);
                assert!(is_whole(&mut stream, 100), "{what}");
                let told = ends_well(server);
                // Not by the time that a client has while nobody waits. (How long all of it took hangs on the host.)
                assert!(told["hurried"].as_u64() > Some(0), "{what}: {told}");
            });
        }
    });
}

#[test]
fn a_header_has_a_time() {
    let dir = site(&[]);
    let server = Server::start(dir.path(), &["--json"]);
    let mut stream = server.connect();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").expect("sent");
    // A byte now and then is not enough.
    let mut other = stream.try_clone().expect("a descriptor");
    let slow = std::thread::spawn(move || {
        while other.write_all(b"A: b\r\n").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    assert!(read_header(&mut stream).starts_with("HTTP/1.1 408 "));
    stream.shutdown(Shutdown::Both).expect("shut");
    slow.join().expect("it ends");
    assert_eq!(ends_well(server)["requests"]["408"], 1);
}

#[test]
fn a_client_that_half_closes_gets_every_byte() {
    let sizes: Vec<usize> = (0..12).map(|i| (3 << 20) + i * 333_333).collect();
    let dir = site(&sizes);
    let server = Server::start(dir.path(), &["--json"]);
    std::thread::scope(|scope| {
        for size in sizes {
            let server = &server;
            scope.spawn(move || {
                let mut stream = server.connect();
                get(&mut stream, size);
                stream.shutdown(Shutdown::Write).expect("shut");
                // By now the server has said what the host takes.
                std::thread::sleep(Duration::from_secs(2));
                assert!(is_whole(&mut stream, size), "{size}");
            });
        }
    });
    let told = ends_well(server);
    assert_eq!(told["cut_short"], 0, "{told}");
}

#[test]
fn every_wait_ends_when_the_server_does() {
    let dir = site(&[8 << 20]);
    let kinds: [(&str, &[u8]); 6] = [
        ("takes nothing", b"GET /8388608 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("half a header", b"GET /8388608 HT"),
        ("half an upload", b"PUT /new HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nabc"),
        ("half a chunk", b"PUT /new HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc"),
        ("behind the end", b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
        ("nothing", b""),
    ];
    for options in [&[][..], &["--machine", "xeon-mp", "--kernel", "sf_buf"], &["-m", "sh7751r", "-k", "ant"]]
    {
        let mut options = options.to_vec();
        options.push("--json");
        let server = Server::start(dir.path(), &options);
        let mut streams = Vec::new();
        for (what, says) in kinds.iter().cycle().take(3 * kinds.len()) {
            let mut stream = server.connect();
            stream.write_all(says).expect("sent");
            streams.push((what, stream));
        }
        // The server has begun to answer these.
        for (_, stream) in streams.iter().filter(|(what, _)| **what == "takes nothing") {
            stream.peek(&mut [0]).expect("an answer");
        }
        let told = ends_well(server);
        assert!(told["cut_short"].as_u64() > Some(0), "{told}");
        for (what, mut stream) in streams {
            // What was promised and does not come is never ended as if it were all.
            let mut got = Vec::new();
            let end = stream.read_to_end(&mut got);
            if *what == "takes nothing" {
                assert!(end.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset), "{}", got.len());
            }
        }
    }
}

#[test]
fn a_stop_in_the_middle_cuts_nothing_in_silence() {
    let dir = site(&[300_000]);
    let server = Server::start(dir.path(), &["--json"]);
    let wholes = Arc::new(AtomicU32::new(0));
    let clients: Vec<_> = (0..60)
        .map(|_| {
            let (port, wholes) = (server.port, wholes.clone());
            std::thread::spawn(move || {
                // Until the server is gone.
                while let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
                    let request = b"GET /300000 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                    let mut answer = Vec::new();
                    let ended = stream.write_all(request).and_then(|()| stream.read_to_end(&mut answer));
                    if ended.is_ok() && !answer.is_empty() {
                        // What ends in good order is whole.
                        assert!(answer.ends_with(&bytes(300_000)), "{} bytes", answer.len());
                        wholes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    // In the middle of it: some have had their answer, however long that takes here, and others are waiting.
    for _ in 0..6000 {
        if wholes.load(Ordering::Relaxed) >= 20 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    ends_well(server);
    clients.into_iter().for_each(|client| client.join().expect("no part is taken for the whole"));
    assert!(wholes.load(Ordering::Relaxed) >= 20);
}

#[test]
fn uploads_have_no_count() {
    let dir = site(&[]);
    let server = Server::start(dir.path(), &["--json"]);
    let mut stream = server.connect();
    let mut put = |path: &str, expected: &str| {
        write!(stream, "PUT /{path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na").expect("sent");
        let answer = read_header(&mut stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{path}: {answer}");
    };
    for nth in 0..1100 {
        put(&format!("different/{nth}"), "201");
    }
    for _ in 0..100 {
        put("different/7", "204");
    }
    // Those that come to nothing do not count either.
    for _ in 0..1100 {
        let mut gone = server.connect();
        gone.write_all(b"PUT /gone HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc").expect("sent");
        set_socket_linger(&gone, Some(Duration::ZERO)).expect("set");
    }
    put("last", "201");
    let (_, body) = server.ask("GET /different/1099 HTTP/1.1");
    assert_eq!(body, b"a");
    let (head, _) = server.ask("GET /gone HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    ends_well(server);
}

/// More bytes are begun, one upload after the other, than the machine has memory for.
#[test]
fn uploads_that_come_to_nothing_leave_no_memory() {
    let dir = site(&[]);
    let server =
        Server::start(dir.path(), &["--json", "--receive", "copy", "--set", "machine.memory.size_mb=40"]);
    let body = bytes(200_000);
    for nth in 0..160 {
        let mut gone = server.connect();
        let framing = if nth % 2 == 0 {
            "Content-Length: 250000\r\n\r\n"
        } else {
            "Transfer-Encoding: chunked\r\n\r\n3d090\r\n"
        };
        write!(gone, "PUT /gone HTTP/1.1\r\nHost: x\r\n{framing}").expect("sent");
        gone.write_all(&body).expect("sent");
        // It ends in the middle, which is no body.
        gone.shutdown(Shutdown::Write).expect("shut");
        let answer = read_header(&mut gone);
        assert!(answer.starts_with("HTTP/1.1 400"), "{nth}: {answer}");
    }
    let mut last = server.connect();
    write!(last, "PUT /last HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n").expect("sent");
    last.write_all(&body).expect("sent");
    let answer = read_header(&mut last);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert_eq!(ends_well(server)["requests"]["400"], 160);
}

#[test]
fn of_two_uploads_in_each_others_way_one_is_refused() {
    let dir = site(&[]);
    let server = Server::run(dir.path(), &["serve", ".", "--port", "0", "--json", "--uploads", "new/folder"]);
    let begin = |path: &str| {
        let mut stream = server.connect();
        write!(
            stream,
            "PUT /{path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
        .expect("sent");
        let answer = read_header(&mut stream);
        (stream, answer)
    };
    let end = |mut stream: TcpStream| {
        stream.write_all(b"abc").expect("sent");
        read_header(&mut stream)
    };
    for (first, second) in [("a", "a/b/c"), ("d/e/f", "d")] {
        let (one, answer) = begin(first);
        assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
        let (two, answer) = begin(second);
        assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
        // Both have begun, or the second is refused at once; only one can be whole.
        let second = end(two);
        let first = end(one);
        let codes = [&first[9..12], &second[9..12]];
        assert!(codes.contains(&"201") && codes.contains(&"409"), "{codes:?}");
    }
    let (gone, _) = begin("g/h/i");
    drop(gone);
    let kept = dir.path().join("new/folder");
    let left = || fs::read_dir(&kept).expect("made").count();
    let told = ends_well(server);
    assert_eq!(left(), 2, "{told}");
    assert_eq!(told["host_failed"], serde_json::Value::Null, "{told}");
}

#[cfg(unix)]
#[test]
fn what_cannot_be_served_is_left_out_and_said() {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let dir = site(&[]);
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("real")).expect("made");
    fs::write(at("real/f"), "abc").expect("written");
    fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff\x1b[7m")), "odd").expect("written");
    for (target, link) in [("real", "alias"), ("real/f", "link"), ("nowhere", ".#lock"), (".", "real/up")] {
        symlink(target, at(link)).expect("linked");
    }
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("made");
    let server = Server::start(dir.path(), &["--json"]);
    for (path, body) in [
        ("real/f", "abc"),
        ("link", "abc"),
        ("alias/f", "abc"),
        ("alias/up/up/f", "abc"),
        ("%ff%1B[7m", "odd"),
    ] {
        let (head, got) = server.ask(&format!("GET /{path} HTTP/1.1"));
        assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
        assert_eq!(got, body.as_bytes());
    }
    // One file has two names, also when it is changed.
    write!(server.connect(), "PUT /alias/f HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nnew")
        .expect("sent");
    let mut body = Vec::new();
    for _ in 0..100 {
        (_, body) = server.ask("GET /link HTTP/1.1");
        if body == b"new" {
            break;
        }
    }
    assert_eq!(body, b"new");
    let (_, page) = server.ask("GET / HTTP/1.1");
    let page = String::from_utf8(page).expect("text");
    assert!(page.contains("href=\"./alias/\"") && page.contains("href=\"./%FF%1B%5B7m\""), "{page}");
    let ended = server.stop();
    assert_eq!(ended.code, Some(0), "{}", ended.told);
    for (name, why) in [(".#lock", "leads nowhere"), ("pipe", "no file")] {
        let line = ended.said.lines().find(|line| line.contains(name));
        assert!(line.is_some_and(|line| line.contains("left out") && line.contains(why)), "{}", ended.said);
    }
}

#[test]
fn each_request_has_a_line_in_the_log() {
    let dir = site(&[100]);
    let server = Server::start(dir.path(), &["--log", "log", "--json"]);
    server.ask("GET /100 HTTP/1.1");
    server.ask("GET /none?\"x HTTP/1.1");
    server.ask("nonsense");
    ends_well(server);
    let log = fs::read_to_string(dir.path().join("log")).expect("written");
    let lines: Vec<&str> = log.lines().collect();
    let begins = |line: &str| line.starts_with("10.0.0.1 - - [") && line.contains(" +0000] \"");
    assert!(lines.iter().all(|line| begins(line)), "{log}");
    let ends: Vec<&str> = lines.iter().filter_map(|line| line.split("] ").nth(1)).collect();
    let expected =
        ["\"GET /100 HTTP/1.1\" 200 100", "\"GET /none?\\\"x HTTP/1.1\" 404 10", "\"nonsense\" 400 12"];
    assert_eq!(ends, expected, "{log}");
}

#[test]
fn a_way_that_is_refused_is_gone_by_copy() {
    let dir = site(&[]);
    for (machine, kernel) in [("sh7751r", "ant"), ("today", "uvm"), ("xeon-mp", "sf_buf")] {
        let server = Server::start(dir.path(), &["-m", machine, "-k", kernel, "--json"]);
        let body = bytes(20_000);
        let put =
            [&b"PUT /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n"[..], &body];
        let answer = server.exchange(&put.concat());
        assert!(answer.starts_with(b"HTTP/1.1 201"), "{kernel}: {}", answer.escape_ascii());
        let (_, got) = server.ask("GET /b HTTP/1.1");
        assert!(got == body, "{kernel}");
        ends_well(server);
    }
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_served() {
    let dir = site(&[100]);
    let refused = |arguments: &[&str]| {
        let output =
            crate::common::pageferry(dir.path(), &[&["serve", ".", "--port", "0"], arguments].concat());
        let said = crate::common::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!said.contains("serves"), "{said}");
        said
    };
    refused(&["-m", "today", "-k", "ant"]);
    let said = refused(&["-m", "sh7751r", "-k", "ant", "--receive", "transfer"]);
    assert!(said.contains("transfer"), "{said}");
    fs::write(dir.path().join("large"), vec![0; 80 << 20]).expect("written");
    let said = refused(&["-m", "sh7751r", "-k", "ant"]);
    assert!(said.contains("do not fit"), "{said}");
}

#[test]
fn the_machine_counts_what_its_clients_caused() {
    let dir = site(&[100_000]);
    let server = Server::start(dir.path(), &["--json", "--send", "copy"]);
    let (_, body) = server.ask("GET /100000 HTTP/1.1");
    assert!(body == bytes(100_000));
    let told = ends_well(server);
    for counter in ["pages_donated", "pages_lent", "pages_transferred"] {
        let events = told["counters"][counter].as_u64().unwrap_or(0);
        assert_eq!(events, 0, "{counter}: {told}");
    }
}
