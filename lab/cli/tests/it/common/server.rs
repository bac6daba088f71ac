//! A web server in a modelled machine, as a user starts it, and what a client asks of it.

use super::command;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than any answer takes, however busy the host is.
const HANGS: Duration = Duration::from_secs(600);

/// A server that is killed if the test ends early.
pub struct Server {
    child: Child,
    pub port: u16,
    said: Option<JoinHandle<String>>,
}

/// How it ended.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    /// Standard output.
    pub told: String,
    /// Standard error, behind the address.
    pub said: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let ended = self.child.wait();
        if std::thread::panicking() {
            // Perhaps it knows why.
            let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
            eprintln!("the server: {ended:?} {said}");
        }
    }
}

impl Server {
    /// Serves `directory` by any port.
    pub fn start(directory: &Path, options: &[&str]) -> Server {
        let mut arguments = vec!["serve", ".", "--port", "0"];
        arguments.extend(options);
        Server::run(directory, &arguments)
    }

    pub fn run(directory: &Path, arguments: &[&str]) -> Server {
        let mut child = command(directory, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().expect("piped"));
        errors.read_line(&mut line).expect("it says where");
        let port = line.trim().trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("no port in {line:?}"));
        // What else it says must not stop it.
        let said = std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = errors.read_to_string(&mut rest);
            rest
        });
        Server { child, port, said: Some(said) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(HANGS)).expect("a socket");
        stream
    }

    /// Sends bytes on a connection of their own, and reads until the server closes it.
    pub fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        answer
    }

    /// Asks, on a connection of its own, which ends behind the answer.
    pub fn ask(&self, request: &str) -> (String, Vec<u8>) {
        let request = format!("{request}\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = self.exchange(request.as_bytes());
        let end = answer.windows(4).position(|w| w == b"\r\n\r\n").expect("a header");
        (String::from_utf8(answer[..end].to_vec()).expect("text"), answer[end + 4..].to_vec())
    }

    /// Ends it as Ctrl-C does; what it tells, and its exit code.
    pub fn interrupt(self) -> (String, Option<i32>) {
        let ended = self.stop();
        (ended.told, ended.code)
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(mut self) -> Exit {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let mut told = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut told).expect("text");
        let code = self.child.wait().expect("it ends").code();
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        Exit { code, told, said }
    }
}

/// Reads the header of an answer, byte by byte: what is behind it stays.
pub fn read_header(stream: &mut TcpStream) -> String {
    let mut header = Vec::new();
    while !header.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        header.push(byte[0]);
    }
    String::from_utf8(header).expect("text")
}

/// Bytes that no shift or repetition leaves the same.
pub fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}
