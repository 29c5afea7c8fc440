//! `--serve`: the live view as a web page.

use crate::Place;
use crate::ranks::{signal, spawn, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};

/// A run that lasts until it is ended.
const LONG: &str = "train --quick --dataset synthetic --limit-train 64 --limit-test 20 --epochs 100000 --batch-size 16 \
                    --log-every 2 --save-every 0 --threads 1 --no-progress --output run --serve";

/// A run with a page, which is ended with the test.
struct Served(Child, String);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a run, and reads the address that it prints.
fn serve(place: &Place, args: &str) -> Served {
    let mut child = spawn(place.command(args));
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let url = lines.find_map(|line| line.strip_prefix("the live view is at ").map(str::to_owned));
    // A full pipe would stop the run.
    std::thread::spawn(move || lines.for_each(drop));
    Served(child, url.expect("it prints its address"))
}

impl Served {
    /// The host and port, and the path of the page.
    fn parts(&self) -> (&str, &str) {
        let rest = self.1.strip_prefix("http://").unwrap();
        rest.split_at(rest.find('/').unwrap())
    }

    /// Sends a request, and returns the answer.
    fn raw(&self, request: &str) -> String {
        let (at, mut answer) = (self.parts().0, String::new());
        let port = at.rsplit_once(':').unwrap().1;
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The status and the text of the answer for a path.
    fn get(&self, path: &str) -> (u16, String) {
        let answer = self.raw(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.parts().0));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

#[test]
fn a_run_is_watched_in_a_browser() {
    let place = Place::new();
    let run = serve(&place, &format!("{LONG} 0"));
    let page = run.raw(&format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", run.parts().0));
    for expected in [
        "HTTP/1.1 200 OK\r\n",
        "default-src 'none'; script-src 'self'; connect-src 'self'",
        "X-Content-Type-Options: nosniff\r\n",
        "<script src=\"live.js\" defer></script>",
        "<h1>run</h1>",
        "small_cnn on ",
        "<summary>All ",
        "--epochs 100000 --batch-size 16",
    ] {
        assert!(page.contains(expected), "no `{expected}` in\n{page}");
    }
    let (status, script) = run.get("/live.js");
    assert!(status == 200 && script.contains("fetch(\"figures\""), "{script}");
    // The figures are those of the run: after an epoch one is the best.
    let figures = || run.get("/figures").1;
    wait_for(|| figures().contains("best, epoch ").then_some(()));
    let figures = figures();
    assert!(figures.contains(" of 100000: ") && figures.contains("<th>1<td>"), "{figures}");
    assert!(place.read("run/history-steps.jsonl").starts_with("{\"step\":2,\"epoch\":1,\"loss\":"));
    let metrics = run.raw(&format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", run.parts().0));
    for expected in [
        "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
        "\r\n\r\n# HELP towers_run_info The run.\n# TYPE towers_run_info gauge\ntowers_run_info{run=\"run\",recipe=\"quick\",",
        "\n# TYPE towers_samples_total counter\ntowers_samples_total ",
        "\ntowers_val_accuracy ",
        "\ntowers_epochs 100000\n",
        "\ntowers_running 1\n",
    ] {
        assert!(metrics.contains(expected), "no `{expected}` in\n{metrics}");
    }
    // It is for this machine, and can only be read.
    let host = format!("Host: {}\r\n", run.parts().0);
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 403),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 403),
        (format!("POST / HTTP/1.1\r\n{host}Content-Length: 9\r\n\r\n"), 405),
        (format!("GET /../run/config.json HTTP/1.1\r\n{host}\r\n"), 404),
        (format!("GET / HTTP/1.1\r\n{host}X: {}\r\n", "x".repeat(9000)), 431),
        ("nothing\r\n\r\n".to_owned(), 400),
    ] {
        let answer = run.raw(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}\n{answer}");
    }
    // A taken port is a sentence, and leaves nothing behind.
    let port = run.parts().0;
    let taken =
        place.fails(&format!("train --quick --output other --serve {port}"), "another program has this port");
    assert!(taken.err().lines().count() == 1 && !place.exists("other"), "{}", taken.err());
    place
        .refuses("train --quick --serve nowhere:x", "--serve is nowhere:x, but must be a port or an address");
    in_chromium(&run);
}

/// The script of the page replaces the figures. Skipped where there is no Chromium.
fn in_chromium(run: &Served) {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success());
    let Some(browser) = names.into_iter().find(|name| is_there(name)) else {
        println!("SKIPPED: the page in a browser: there is no Chromium");
        return;
    };
    let profile = tempfile::tempdir().unwrap();
    let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                 --disable-component-update --disable-sync --virtual-time-budget=4000 --dump-dom";
    let mut command = Command::new(browser);
    command.args(flags.split_whitespace()).arg(format!("--user-data-dir={}", profile.path().display()));
    let output = command.arg(&run.1).output().unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    let updates =
        page.split_once("data-updates=\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
    let is_quiet = page.contains("<p id=\"lost\" class=\"alert\" hidden=\"\">");
    assert!(updates > Some(0) && is_quiet, "{page}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// From other machines the page needs a token, and after the run an open page is told how it ended.
#[test]
fn a_page_for_others_needs_its_token() {
    let place = Place::new();
    let run = serve(&place, &format!("{LONG} 0.0.0.0:0"));
    let (_, path) = run.parts();
    assert_eq!(path.len(), "/".len() + 32 + "/".len(), "{}", run.1);
    assert_eq!([run.get("/").0, run.get("/figures").0, run.get("/live.js").0], [403; 3]);
    assert_eq!(run.get(&format!("/{}/", "0".repeat(32))).0, 403);
    assert_eq!((run.get(path).0, run.get(path.trim_end_matches('/')).0), (200, 308));
    assert_eq!(run.get(&format!("{path}figures")).0, 200);
    signal("-INT", &run.0.id().to_string());
    let ended = "The run was interrupted and saved; --resume continues it.";
    wait_for(|| run.get(&format!("{path}figures")).1.contains(ended).then_some(()));
}
