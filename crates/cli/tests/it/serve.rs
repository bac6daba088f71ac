//! A web server in a modelled machine, and real clients: what they get, and how it ends.

use crate::common::{command, pageferry, text};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A server that is killed if the test ends early.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(directory: &std::path::Path, options: &[&str]) -> Server {
        let mut arguments = vec!["serve", ".", "--port", "0"];
        arguments.extend(options);
        let mut child = command(directory, &arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        said.read_line(&mut line).expect("it says where");
        let port = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {line:?}"));
        // What else it says must not stop it.
        std::thread::spawn(move || said.read_to_string(&mut String::new()));
        Server { child, port }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        stream
    }

    /// Asks, on a connection of its own, which ends behind the answer.
    fn ask(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = self.connect();
        write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a header");
        (String::from_utf8(answer[..end].to_vec()).expect("text"), answer[end + 4..].to_vec())
    }

    /// Ends it as Ctrl-C does; what it tells, and its exit code.
    fn interrupt(mut self) -> (String, Option<i32>) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut told = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut told).expect("text");
        (told, self.child.wait().expect("it ends").code())
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

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
            ("PUT /one HTTP/1.1", "405"),
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
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).expect("a header");
                        head.push(byte[0]);
                    }
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
    (0..300).for_each(|i| fs::write(dir.path().join(format!("{i}")), "x").expect("written"));
    let said = refused(&["serve", ".", "--port", "0"]);
    assert!(said.contains("more files than the 250"), "{said}");
}
