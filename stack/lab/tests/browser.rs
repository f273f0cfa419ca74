//! The pages in a browser: they load without an error, show every packet, and step by the keyboard.
//!
//! Driven by chromedriver over WebDriver (W3C), which is HTTP and JSON. Without chromium this says SKIP: `dev/browser` installs it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use xroce_lab::capture::{Capture, Captured};
use xroce_lab::ladder::{self, Packet};
use xroce_lab::{Ladder, SCENARIOS, Scenario, fields, page};
use xroce_script::files;

/// chromedriver, and a session with a browser that it started.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// `Err` says what is missing.
    fn start() -> Result<Browser, String> {
        for program in ["chromedriver", "chromium"] {
            let there = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            there.map_err(|_| format!("no {program}: dev/browser installs it"))?;
        }
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("chromedriver: {e}"))?;
        let port = port_of(&mut driver).ok_or("chromedriver did not say its port")?;
        let mut browser = Browser { driver, port, session: String::new() };
        let options = json!({"binary": which("chromium"), "args": ["--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--window-size=1400,1000"]});
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"}}}});
        let session = browser.call("POST", "/session", &wanted)?;
        browser.session = session["sessionId"].as_str().ok_or("no session")?.to_owned();
        Ok(browser)
    }

    /// A command of the session; its value.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        self.call(method, &path, body).unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(120))).map_err(|e| e.to_string())?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).map_err(|e| e.to_string())?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).map_err(|e| e.to_string())? <= 2 {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().map_err(|_| format!("length {value}"))?;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|e| e.to_string())?;
        match &answer["value"]["error"] {
            Value::String(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            _ => Ok(answer["value"].clone()),
        }
    }

    fn open(&self, file: &Path) {
        self.ask("POST", "/url", &json!({"url": format!("file://{}", file.display())}));
    }

    fn js(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({"script": format!("return {script}"), "args": []}))
    }

    fn key(&self, key: &str) {
        let actions = json!({"actions": [{"type": "key", "id": "k",
            "actions": [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]});
        self.ask("POST", "/actions", &actions);
    }

    fn step(&self) -> String {
        self.js("document.getElementById('count').textContent").as_str().unwrap_or_default().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.call("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn which(program: &str) -> String {
    let out = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    out.map_or(String::new(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// chromedriver says "... was started successfully on port N."
fn port_of(driver: &mut Child) -> Option<u16> {
    let mut lines = BufReader::new(driver.stdout.take()?).lines().map_while(Result::ok);
    lines.find_map(|line| line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok())
}

const RIGHT: &str = "\u{E014}";
const LEFT: &str = "\u{E012}";
const HOME: &str = "\u{E011}";
const END: &str = "\u{E010}";

/// Packet scripts with what scenarios have not: one end's state only, malformed packets, hundreds of steps.
fn scripts() -> Vec<Ladder> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scripts");
    let load = |name: &&str| files::load(&folder.join(name)).expect("a script");
    let names = ["rc/rnr_wait_is_not_shortened.roce", "rc/rx_lengths.roce", "rc/window_behind_a_read.roce"];
    names.iter().map(load).map(|script| xroce_lab::script::ladder(&script)).collect()
}

/// A capture in which something went wrong.
fn capture() -> Ladder {
    let ladder = Scenario::find("go-back-n").expect("a scenario").run();
    let packet = |(i, packet): (usize, &Packet)| {
        let [src, dst] =
            [packet.from, 1 - packet.from].map(|end| ladder.ends[end].address.parse().expect("an address"));
        let time_ns = i as i128 * 10_000;
        Captured {
            frame: i as u64 + 101,
            interface: 0,
            time_ns,
            src,
            dst,
            link: Vec::new(),
            bytes: packet.sent.clone(),
        }
    };
    let packets = ladder.packets.iter().enumerate().map(packet).collect();
    Capture::new(packets).ladder("captured", 0).expect("a conversation")
}

/// Writes a page and opens it.
fn opened(browser: &Browser, ladder: &Ladder, name: &str) -> PathBuf {
    let file = std::env::temp_dir().join(format!("xroce-lab-{name}-{}.html", std::process::id()));
    std::fs::write(&file, page(ladder).expect("a page")).expect("a scratch file");
    browser.open(&file);
    file
}

#[test]
fn a_finding_leads_to_its_step() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP a_finding_leads_to_its_step: {reason}"),
    };
    let ladder = capture();
    let file = opened(&browser, &ladder, "finding");
    let step = ladder.findings[0].step.expect("a step") + 1;
    browser.js("document.querySelectorAll('#findings li')[0].click()");
    assert_eq!(browser.step(), format!("step {step} of {}", ladder.steps.len()));
    let note = browser.js("document.getElementById('note').textContent");
    assert!(note.as_str().is_some_and(|note| note.contains("sequence NAK")), "{note}");
    std::fs::remove_file(&file).expect("ours");
}

/// Whether the step of now stands in the window, below the bar that covers its top, when all is drawn.
const IN_SIGHT: &str = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => { \
    const row = document.querySelector('#ladder .row.now').getBoundingClientRect(); \
    const bar = document.querySelector('.bar').getBoundingClientRect(); \
    done(row.top >= bar.bottom && row.bottom <= innerHeight ? 'in sight' : `${row.top} to ${row.bottom} of ${innerHeight}`); \
    })))";

#[test]
fn a_page_opens_at_the_step_of_its_fragment() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP a_page_opens_at_the_step_of_its_fragment: {reason}"),
    };
    let ladder = scripts().remove(2);
    let (file, steps) = (opened(&browser, &ladder, "fragment"), ladder.steps.len());
    let open = |fragment: &str| {
        // Another page in between, so that the fragment is that of a page that opens.
        browser.ask("POST", "/url", &json!({"url": "about:blank"}));
        browser.ask("POST", "/url", &json!({"url": format!("file://{}#{fragment}", file.display())}));
    };
    for (fragment, step) in [("45", 45), ("9999", steps), (&*steps.to_string(), steps), ("46", 46)] {
        open(fragment);
        assert_eq!(browser.step(), format!("step {step} of {steps}"), "#{fragment}");
        assert_eq!(browser.js(IN_SIGHT), "in sight", "#{fragment}");
    }
    // In a page that is open already.
    browser.js(
        "new Promise((done) => { addEventListener('hashchange', () => done(0), { once: true }); location.hash = '120'; })",
    );
    assert_eq!(browser.step(), format!("step 120 of {steps}"));
    assert_eq!(browser.js(IN_SIGHT), "in sight");
    // What is no step leaves a page at its head, where it says what it is about.
    for fragment in ["", "abc"] {
        open(fragment);
        assert_eq!(browser.step(), format!("step 1 of {steps}"), "#{fragment}");
        assert_eq!(browser.js("scrollY"), 0, "#{fragment}");
    }
    std::fs::remove_file(&file).expect("ours");
}

/// Bytes of a base64 text.
fn bytes_of(base64: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut out) = (0u32, 0, Vec::new());
    for value in base64.bytes().filter_map(|c| alphabet.iter().position(|a| *a == c)) {
        (bits, held) = (bits << 6 | value as u32, held + 6);
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
        }
    }
    out
}

/// The text of the first pages of a PDF, where pdftotext (poppler-utils) is installed.
fn text_of(pdf: &Path, pages: &str) -> Option<String> {
    let out = Command::new("pdftotext")
        .args(["-raw".as_ref(), "-l".as_ref(), pages.as_ref(), pdf.as_os_str(), "-".as_ref()])
        .output()
        .ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// What is printed of a ladder: its first page, and all.
fn whole(ladder: &Ladder, first: &str, text: &str) {
    let name = &ladder.name;
    assert!(!text.contains("step 1 of"), "{name}: what only a screen needs");
    assert!(ladder.findings.is_empty() || text.contains("WHAT WENT WRONG"), "{name}: {text}");
    assert!(first.contains(&format!("#{} ", ladder.number(0))), "{name}: the ladder begins on the first page: {first}");
    for index in 0..ladder.packets.len() {
        // In a row that is cut it would be on two pages.
        let label = format!("#{} ", ladder.number(index));
        let times = text.lines().filter(|line| line.starts_with(&label) && !line.ends_with("arrives")).count();
        assert_eq!(times, 1, "{name}: {label} in {text}");
    }
    let times: Vec<String> =
        ladder.steps.iter().map(|step| ladder::time(step.at_ns).replace('\u{202f}', " ")).collect();
    let missing = times.iter().find(|time| !text.lines().any(|line| line.starts_with(&**time)));
    assert_eq!(missing, None, "{name}: times: {text}");
}

#[test]
fn a_page_prints_whole() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP a_page_prints_whole: {reason}"),
    };
    for (ladder, pages) in [(capture(), 1), (scripts().remove(2), 10)] {
        let file = opened(&browser, &ladder, "print");
        let pdf = bytes_of(browser.ask("POST", "/print", &json!({})).as_str().expect("a PDF"));
        assert!(pdf.starts_with(b"%PDF"), "{}: {} bytes", ladder.name, pdf.len());
        let mark = b"/Type /Page";
        let count = pdf.windows(mark.len() + 1).filter(|w| w.starts_with(mark) && w[mark.len()] != b's').count();
        assert!(count >= pages, "{}: {count} pages", ladder.name);
        let printed = file.with_extension("pdf");
        std::fs::write(&printed, &pdf).expect("a scratch file");
        match text_of(&printed, "1").zip(text_of(&printed, "9999")) {
            Some((first, text)) => whole(&ladder, &first, &text),
            None => println!("SKIP a_page_prints_whole, its text: no pdftotext (poppler-utils)"),
        }
        // Nothing is cut off: each text lies inside the row that it belongs to. A line of text is higher than its letters.
        let wide = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}});
        browser.ask("POST", "/goog/cdp/execute", &wide);
        browser.js("dispatchEvent(new Event('beforeprint'))");
        assert_eq!(
            browser.js("document.querySelectorAll('#paper tbody tr').length"),
            ladder.steps.len(),
            "{}",
            ladder.name
        );
        let out = "[...document.querySelectorAll('#paper text')].filter(t => { \
                   const a = t.getBoundingClientRect(), b = t.ownerSVGElement.getBoundingClientRect(); \
                   return a.right > b.right + 1 || a.left < b.left - 1 || a.bottom > b.bottom + 4 || a.top < b.top - 4; \
                   }).map(t => t.textContent)";
        assert_eq!(browser.js(out), json!([]), "{}: texts that leave the paper", ladder.name);
        assert_eq!(browser.js("getComputedStyle(document.querySelector('.bar')).display"), "none", "{}", ladder.name);
        let cut = "[...document.querySelectorAll('#paper tr')].filter(r => getComputedStyle(r).breakInside !== 'avoid').length";
        assert_eq!(browser.js(cut), 0, "{}: rows that a page may end in", ladder.name);
        assert_eq!(browser.js("document.querySelectorAll('#paper .later').length"), 0, "{}: all is black", ladder.name);
        browser.js("dispatchEvent(new Event('afterprint'))");
        assert_eq!(
            browser.js("document.querySelectorAll('#paper *').length"),
            0,
            "{}: afterwards it is gone",
            ladder.name
        );
        browser.ask(
            "POST",
            "/goog/cdp/execute",
            &json!({"cmd": "Emulation.setEmulatedMedia", "params": {"media": ""}}),
        );
        for file in [file, printed] {
            std::fs::remove_file(file).expect("ours");
        }
    }
}

#[test]
fn pages_work_in_a_browser() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP pages_work_in_a_browser: {reason}"),
    };
    for ladder in SCENARIOS.iter().map(|scenario| scenario.run()).chain(scripts()).chain([capture()]) {
        let file = std::env::temp_dir().join(format!("xroce-lab-{}-{}.html", ladder.name, std::process::id()));
        std::fs::write(&file, page(&ladder).expect("a page")).expect("a scratch file");
        browser.open(&file);
        let name = &ladder.name;
        assert_eq!(browser.js("document.documentElement.dataset.ready"), "true", "{name}");
        assert_eq!(
            browser.js("document.querySelectorAll('#ladder .label').length"),
            ladder.packets.len(),
            "{name}: packets"
        );
        // No line runs between the letters of a label: what lies under it is as wide as it is.
        let bare = "[...document.querySelectorAll('#ladder .label')].filter(t => { const under = t.previousElementSibling; \
                    const wide = (e) => e.getBoundingClientRect().width; \
                    return !under || !under.matches('.under') || wide(under) < wide(t) - 6 || wide(under) > wide(t) + 12; \
                    }).map(t => t.textContent)";
        assert_eq!(browser.js(bare), json!([]), "{name}: labels that lines run through");
        let steps = ladder.steps.len();
        assert_eq!(browser.js("document.querySelectorAll('#ladder text.time').length"), steps, "{name}: steps");
        assert_eq!(browser.step(), format!("step 1 of {steps}"), "{name}");
        browser.key(RIGHT);
        browser.key(RIGHT);
        browser.key(LEFT);
        assert_eq!(browser.step(), format!("step 2 of {steps}"), "{name}");
        browser.key(END);
        assert_eq!(browser.step(), format!("step {steps} of {steps}"), "{name}");
        browser.key(RIGHT);
        assert_eq!(browser.step(), format!("step {steps} of {steps}"), "{name}: there is no further one");
        browser.key(HOME);
        assert_eq!(browser.step(), format!("step 1 of {steps}"), "{name}");
        let errors = browser.ask("POST", "/se/log", &json!({"type": "browser"}));
        assert_eq!(errors, json!([]), "{name}: the console is silent");
        std::fs::remove_file(&file).expect("ours");
    }
}

/// A packet as the page puts it together: its bytes, its headers, and what they say.
fn taken_apart(bytes: &[u8]) -> Value {
    let field = |f: &fields::Field| json!([f.name, f.at, f.bits, f.value, f.says, f.cover, f.about]);
    let header = |h: &fields::Header| json!([h.name, h.title, h.fields.iter().map(field).collect::<Vec<_>>()]);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    json!([hex, fields::headers(bytes).iter().map(header).collect::<Vec<_>>()])
}

#[test]
fn a_page_puts_packets_together_from_what_it_holds_once() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP a_page_puts_packets_together_from_what_it_holds_once: {reason}"),
    };
    let mut cut = capture();
    cut.packets.iter_mut().zip(20..).for_each(|(packet, len)| packet.sent.truncate(len));
    let mut behind = capture();
    behind.packets.iter_mut().for_each(|packet| packet.sent.extend([1, 2, 3]));
    for ladder in SCENARIOS.iter().map(|scenario| scenario.run()).chain(scripts()).chain([cut, behind]) {
        let file = opened(&browser, &ladder, "apart");
        let view = "(index) => { const view = look(index); return [view.hex, view.headers.map((h) => [h.name, h.title, \
                    h.fields.map((f) => [f.name, f.at, f.bits, f.value, f.says, f.cover, lab.glossary[h.name + '.' + f.name] || ''])])]; }";
        let seen = browser.js(&format!("lab.packets.map((packet) => ({view})(packet.view))"));
        for (index, packet) in ladder.packets.iter().enumerate() {
            assert_eq!(seen[index], taken_apart(&packet.sent), "{} #{}", ladder.name, index + 1);
        }
        let times: Vec<String> = ladder.steps.iter().map(|step| ladder::time(step.at_ns)).collect();
        assert_eq!(browser.js("lab.steps.map((step) => step.time)"), json!(times), "{}", ladder.name);
        let lines = |state: &Option<ladder::State>| state.as_ref().map(ladder::state_lines);
        let states: Vec<Value> = ladder.steps.iter().map(|step| json!(step.states.each_ref().map(lines))).collect();
        let seen = browser.js("lab.steps.map((step) => step.states || [null, null])");
        assert_eq!(seen, json!(states), "{}", ladder.name);
        let words = |state: &Option<ladder::State>| {
            let queue = |queue: &Vec<ladder::Request>| queue.iter().map(|r| r.progress.words()).collect::<Vec<_>>();
            state.as_ref().map(|state| [queue(&state.sends), queue(&state.recvs)])
        };
        let requests: Vec<Value> = ladder.steps.iter().map(|step| json!(step.states.each_ref().map(words))).collect();
        let seen = browser.js(
            "lab.steps.map((step) => (step.requests || [null, null]).map((qs) => qs && qs.map((q) => q.map((line) => line[4]))))",
        );
        assert_eq!(seen, json!(requests), "{}", ladder.name);
        std::fs::remove_file(&file).expect("ours");
    }
}

#[test]
fn a_packet_opens_down_to_its_bytes() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(reason) => return println!("SKIP a_packet_opens_down_to_its_bytes: {reason}"),
    };
    let ladder = SCENARIOS.iter().find(|s| s.name == "bad-icrc").expect("a scenario").run();
    let file = std::env::temp_dir().join(format!("xroce-lab-bytes-{}.html", std::process::id()));
    std::fs::write(&file, page(&ladder).expect("a page")).expect("a scratch file");
    browser.open(&file);
    let click = |label: usize| {
        browser.js(&format!("document.querySelectorAll('#ladder .label')[{label}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"));
    };
    click(0);
    let bytes = ladder.packets[0].sent.len();
    assert_eq!(browser.js("document.querySelectorAll('#bytes .by').length"), bytes);
    // IPv4: TOS, TTL, two of the checksum; UDP: two of the checksum; BTH: one.
    assert_eq!(browser.js("document.querySelectorAll('#bytes .by.masked').length"), 7);
    assert_eq!(browser.js("document.querySelectorAll('#bytes .by.icrc').length"), 4);
    assert_eq!(browser.js("document.querySelectorAll('#bytes .by.flipped').length"), 0, "as it was sent");
    let enter = "dispatchEvent(new MouseEvent('mouseenter'))";
    browser.js(&format!("document.querySelectorAll('#bytes .by')[37].{enter}"));
    assert_eq!(browser.js("document.querySelector('#fields tr.lit td').textContent"), "PSN", "byte 37 is in the PSN");
    browser.js(&format!(
        "[...document.querySelectorAll('#fields tr')].find(r => r.cells[0].textContent === 'DestQP').{enter}"
    ));
    assert_eq!(
        browser.js("[...document.querySelectorAll('#bytes .by.lit')].map(b => b.dataset.byte).join()"),
        "33,34,35"
    );
    // The step at which it arrives, with the flipped bit.
    browser.js("document.querySelectorAll('#notelist li')[0].click()");
    assert_eq!(browser.js("document.querySelectorAll('#bytes .by.flipped').length"), 1);
    assert!(browser.js("document.getElementById('fields').textContent").as_str().is_some_and(|t| t.contains("WRONG")));
    browser.key("b");
    assert_eq!(browser.js("document.getElementById('wire').open"), true);
    assert_eq!(browser.js("document.querySelectorAll('#wire .by').length"), bytes);
    browser.key("b");
    assert_eq!(browser.js("document.querySelectorAll('#packet .by').length"), bytes, "back in its place");
    std::fs::remove_file(&file).expect("ours");
}
