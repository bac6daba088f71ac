//! A web server in a modelled machine, and real clients: what they get, and how it ends.

use crate::common::server::{Server, bytes, read_header};
use crate::common::{pageferry, text};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

#[test]
fn files_come_as_they_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, len: usize| fs::write(dir.path().join(name), bytes(len)).expect("written");
    fs::create_dir(dir.path().join("below")).expect("made");
    write("empty", 0);
    write("one", 1);
    write("big", 3_000_001);
    write("below/index.html", 5000);
    for options in
        [&[][..], &["--machine", "xeon-mp", "--kernel", "sf_buf"], &["-m", "ppc603", "-k", "sf_buf"]]
    {
        let server = Server::start(dir.path(), options);
        for (name, len) in
            [("empty", 0), ("one", 1), ("big", 3_000_001), ("below/", 5000), ("below/index.html", 5000)]
        {
            if options.contains(&"ppc603") && len > 5000 {
                // Ten megabits a second.
                continue;
            }
            let (head, body) = server.ask(&format!("GET /{name} HTTP/1.1"));
            assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
            assert!(head.contains(&format!("Content-Length: {len}\r\n")), "{head}");
            assert!(body == bytes(len), "{options:?}: {name}");
        }
        let (head, body) = server.ask("HEAD /one HTTP/1.1");
        assert!(
            head.starts_with("HTTP/1.1 200 OK") && head.contains("Content-Length: 1\r\n") && body.is_empty()
        );
        let (head, body) = server.ask("GET /below/index.html HTTP/1.1\r\nRange: bytes=4096-");
        assert!(head.starts_with("HTTP/1.1 206") && head.contains("bytes 4096-4999/5000"), "{head}");
        assert!(body == bytes(5000)[4096..]);
        for (request, status) in [
            ("GET /none HTTP/1.1", "404"),
            ("GET /../one HTTP/1.1", "404"),
            ("GET /%2e%2e/one HTTP/1.1", "404"),
            ("DELETE /one HTTP/1.1", "405"),
            ("PUT /one HTTP/1.1", "411"),
            ("PUT /one HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", "501"),
            ("PUT /one HTTP/1.1\r\nContent-Length: 0\r\nContent-Range: bytes 0-0/1", "400"),
            ("PUT /one HTTP/1.1\r\nContent-Length: +1", "400"),
            ("PUT /../x HTTP/1.1\r\nContent-Length: 0", "403"),
            ("PUT /below HTTP/1.1\r\nContent-Length: 0", "409"),
            ("PUT /one/more HTTP/1.1\r\nContent-Length: 0", "409"),
            ("PUT / HTTP/1.1\r\nContent-Length: 0", "409"),
            ("PUT /large HTTP/1.1\r\nContent-Length: 99999999999999", "507"),
            ("GET /one HTTP/1.1\r\nRange: bytes=9-", "416"),
            ("nonsense", "400"),
        ] {
            let (head, _) = server.ask(request);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {head}");
        }
        let (told, code) = server.interrupt();
        assert_eq!(code, Some(0), "{told}");
        assert!(told.contains("requests") && told.contains("packets"), "{told}");
    }
}

#[test]
fn frames_are_written_as_they_went_over_the_wire() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("site")).expect("made");
    fs::write(dir.path().join("site/file"), bytes(5000)).expect("written");
    let server = Server::run(dir.path(), &["serve", "site", "--port", "0", "--pcap", "frames", "--json"]);
    server.ask("GET /file HTTP/1.1");
    let (told, code) = server.interrupt();
    assert_eq!(code, Some(0), "{told}");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let pcap = fs::read(dir.path().join("frames")).expect("it is there");
    // The magic number of times in nanoseconds; then frames, each behind 16 bytes of which the third word is its
    // length.
    assert_eq!(pcap[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    let (mut at, mut frames) = (24, 0);
    while at < pcap.len() {
        let len = u32::from_le_bytes(pcap[at + 8..at + 12].try_into().expect("four bytes"));
        at += 16 + len as usize;
        frames += 1;
    }
    let sent = told["counters"]["packets_sent"].as_u64().expect("a count");
    assert!(at == pcap.len() && frames > sent, "{frames} frames, {sent} packets sent");
}

#[test]
fn clients_come_at_once_stay_and_go_midway() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("file"), bytes(400_000)).expect("written");
    let server = Server::start(dir.path(), &[]);
    std::thread::scope(|scope| {
        for i in 0..30 {
            let server = &server;
            scope.spawn(move || {
                if i % 10 == 9 {
                    // Asks, takes a little, and is gone.
                    let mut stream = server.connect();
                    write!(stream, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
                    stream.read_exact(&mut [0; 1000]).expect("it begins");
                    return;
                }
                // Three on one connection, one behind the other.
                let mut stream = server.connect();
                for _ in 0..3 {
                    write!(stream, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
                    read_header(&mut stream);
                    let mut body = vec![0; 400_000];
                    stream.read_exact(&mut body).expect("a body");
                    assert!(body == bytes(400_000));
                }
            });
        }
    });
    let (told, code) = server.interrupt();
    assert_eq!(code, Some(0), "{told}");
}

#[test]
fn what_cannot_be_served_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let refused = |arguments: &[&str]| {
        let output = pageferry(dir.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        said
    };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let said = refused(&["serve", ".", "--port", &port]);
    assert!(said.contains(&format!("127.0.0.1:{port}")) && said.contains("in use"), "{said}");
    let said = refused(&["serve", "none", "--port", "0"]);
    assert!(said.contains("cannot read none"), "{said}");
    fs::write(dir.path().join("file"), "x").expect("written");
    let said = refused(&["serve", "file", "--port", "0"]);
    assert!(said.contains("expected a directory"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--machine", "486"]);
    assert!(said.contains("expected a machine with a network card"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--machine", "ppc603", "--kernel", "linux-ppc"]);
    assert!(
        said.contains("linux-ppc") && said.contains("expected a kernel with the Internet protocols"),
        "{said}"
    );
    let said = refused(&["serve", ".", "--port", "0", "--set", "kernel.net.ack_segment=1"]);
    assert!(said.contains("ack_segments"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--set", "bytes=1"]);
    assert!(said.contains("expected machine.KEY or kernel.KEY"), "{said}");
    let said = refused(&["serve", ".", "--tap", "nosuchtap"]);
    assert!(said.contains("nosuchtap") && said.contains("ip tuntap add"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--pcap", "none/frames"]);
    assert!(said.contains("cannot write none/frames"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--uploads", "file/none"]);
    assert!(said.contains("cannot write file/none"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--log", "none/log"]);
    assert!(said.contains("cannot write none/log"), "{said}");
    let said = refused(&["serve", ".", "--port", "0", "--send", "laon"]);
    assert!(said.contains("loan"), "{said}");
}

/// Says what is asked for, and reads one answer without a body.
fn put(stream: &mut TcpStream, head: &str, body: &[u8], waits: bool) -> String {
    let expect = if waits { "Expect: 100-continue\r\n" } else { "" };
    let len = body.len();
    write!(stream, "{head}\r\nHost: x\r\n{expect}Content-Length: {len}\r\n\r\n").expect("sent");
    if waits {
        assert!(read_header(stream).starts_with("HTTP/1.1 100"), "{head}");
    }
    stream.write_all(body).expect("sent");
    read_header(stream)
}

#[test]
fn uploads_are_served_and_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("site")).expect("made");
    fs::create_dir(dir.path().join("kept")).expect("made");
    fs::write(dir.path().join("site/one"), "x").expect("written");
    // To choose, the kernel measures first, and pages move in that.
    let large_frames = "machine.nic.mtu_bytes=4148";
    let mut flipped = Vec::new();
    for receive in ["copy", "transfer", "auto"] {
        let options = [
            "serve",
            "site",
            "--send",
            "loan",
            "--port",
            "0",
            "--receive",
            receive,
            "--uploads",
            "kept",
            "--set",
            large_frames,
            "--json",
        ];
        let server = Server::run(dir.path(), &options);
        let mut stream = server.connect();
        // In one connection: a new path, below a new directory; an old one; nothing; more than one window.
        let uploads =
            [("new/one", 5000, true), ("one", 4096, false), ("empty", 0, false), ("large", 1_234_567, true)];
        for (path, len, waits) in uploads {
            let answer = put(&mut stream, &format!("PUT /{path} HTTP/1.1"), &bytes(len), waits);
            let status = if path == "one" { "204" } else { "201" };
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{receive} {path}: {answer}");
        }
        for (path, len, _) in uploads {
            let (head, body) = server.ask(&format!("GET /{path} HTTP/1.1"));
            assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
            assert!(body == bytes(len), "{receive}: {path}");
            assert!(fs::read(dir.path().join("kept").join(path)).expect("kept") == bytes(len), "{path}");
        }
        // In chunks, of which each is longer than a window, shorter, or of a byte.
        let chunked = bytes(300_000 + 17 + 1);
        write!(stream, "PUT /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            .expect("sent");
        for chunk in [&chunked[..300_000], &chunked[300_000..300_017], &chunked[300_017..]] {
            let coded = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            stream.write_all(&coded).expect("sent");
        }
        stream.write_all(b"0\r\n\r\n").expect("sent");
        assert!(read_header(&mut stream).starts_with("HTTP/1.1 201"), "{receive}");
        let (_, body) = server.ask("GET /chunked HTTP/1.1");
        assert!(body == chunked && fs::read(dir.path().join("kept/chunked")).expect("kept") == chunked);
        // A client that goes away midway leaves what was there.
        let mut gone = server.connect();
        write!(gone, "PUT /one HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n").expect("sent");
        gone.write_all(&bytes(50_000)).expect("sent");
        drop(gone);
        // Those that come behind it are served, and a second upload of the same path takes its place.
        let (_, body) = server.ask("GET /one HTTP/1.1");
        assert!(body == bytes(4096));
        put(&mut stream, "PUT /one HTTP/1.1", b"two", false);
        let (_, body) = server.ask("GET /one HTTP/1.1");
        assert_eq!(body, b"two");
        drop(stream);
        let (told, code) = server.interrupt();
        assert_eq!(code, Some(0), "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["requests"]["201"], 4, "{told}");
        flipped.push(told["counters"]["pages_donated"].as_u64().unwrap_or(0));
        let left: Vec<_> =
            fs::read_dir(dir.path().join("kept")).expect("there").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left.len(), 5, "{left:?}");
        fs::remove_dir_all(dir.path().join("kept"))
            .and_then(|()| fs::create_dir(dir.path().join("kept")))
            .expect("empty");
    }
    assert_eq!(flipped[0], 0);
    assert!(flipped[1] > 250, "of 301 pages of the large one most are flipped: {flipped:?}");
}

#[cfg(unix)]
#[test]
fn uploads_stay_in_their_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    for made in ["site", "kept", "outside"] {
        fs::create_dir(dir.path().join(made)).expect("made");
    }
    fs::write(dir.path().join("outside/file"), "mine").expect("written");
    std::os::unix::fs::symlink("../outside", dir.path().join("kept/out")).expect("linked");
    std::os::unix::fs::symlink("../outside/file", dir.path().join("kept/file")).expect("linked");
    let server = Server::run(dir.path(), &["serve", "site", "--port", "0", "--uploads", "kept"]);
    for path in ["out/file", "out/new/file", "file"] {
        let answer = put(&mut server.connect(), &format!("PUT /{path} HTTP/1.1"), b"theirs", false);
        assert!(answer.starts_with("HTTP/1.1 500"), "{path}: {answer}");
    }
    let (told, code) = server.interrupt();
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(fs::read_dir(dir.path().join("outside")).expect("there").count(), 1);
    assert_eq!(fs::read(dir.path().join("outside/file")).expect("there"), b"mine");
}
