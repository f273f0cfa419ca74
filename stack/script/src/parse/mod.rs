//! Reading scripts.
//!
//! In: the text of a file. Out: a [`Script`], or a [`ParseError`] that points at what is wrong. The format is described in
//! README.md.

mod connection;
mod line;
mod packet;
mod post;
mod value;

use xroce_transport::{DropReason, QpCounters};

use crate::error::ParseError;
use crate::model::{Action, Compare, Delay, Expect, Head, Place, QpSetup, Script, Step, When};
use crate::names;
use line::{Line, Result, Word, Words};

const STATEMENTS: &[&str] = &[
    ">",
    ">*",
    "<",
    "post_send",
    "post_recv",
    "wc",
    "event",
    "silent",
    "no",
    "expect",
    "mr",
    "dereg",
    "set",
    "modify",
    "arm",
    "repeat",
    "end",
];
/// Attributes that `expect attr` knows.
const ATTRIBUTES: &[&str] =
    &["rq_psn", "sq_psn", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic"];
/// The most rounds of a `repeat`.
const MAX_ROUNDS: u64 = 10_000;

/// Reads a script. `name` is how the file is called in errors and reports.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(name: &str, text: &str) -> std::result::Result<Script, ParseError> {
    let comments = comments(text);
    let lines = text.lines().zip(&comments).zip(1..);
    let lines: Vec<Line<'_>> = lines
        .map(|((raw, comment), number)| Line { file: name, number, text: without_comment(raw), comment })
        .collect();
    let (head, rest) = head(text, &lines)?;
    let (setup, steps_at) = qp_line(&lines, rest, name)?;
    let steps = steps(&lines[steps_at..], &setup)?;
    Ok(Script { name: name.to_owned(), head, qp: setup, steps })
}

/// The line up to a `#` that stands at its start or behind a space.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        quoted ^= c == '"';
        if c == '#' && !quoted && before.is_whitespace() {
            return &line[..at];
        }
        before = c;
    }
    line
}

/// For each line its comment: the one behind it, and before that those on lines of their own that stand right above.
fn comments(text: &str) -> Vec<String> {
    let mut above: Vec<&str> = Vec::new();
    let comment_of = |raw| {
        let code = without_comment(raw);
        let comment = raw[code.len()..].trim_start_matches('#').trim();
        above.extend((!comment.is_empty()).then_some(comment));
        let code = code.trim();
        // What is said of a block is said of its first step.
        if code.is_empty() && !comment.is_empty() || code.starts_with("repeat ") {
            return String::new();
        }
        let all = above.join(" ");
        above.clear();
        all
    };
    text.lines().map(comment_of).collect()
}

/// The comment at the start, and the tags. Gives the index of the first line behind them.
fn head(text: &str, lines: &[Line<'_>]) -> Result<(Head, usize)> {
    const TAGS: &[&str] = &["source", "covers", "where"];
    const PLACES: names::Table<Place> = &[("here", Place::Here), ("dut", Place::Own), ("any", Place::Any)];
    let mut head = Head::default();
    let comments = text.lines().take_while(|l| l.starts_with('#'));
    head.rule = comments.map(|l| l.trim_start_matches('#').trim()).collect::<Vec<_>>().join("\n");
    let mut at = 0;
    for (i, line) in lines.iter().enumerate() {
        at = i;
        let mut words = line.words();
        let Some(first) = words.peek() else { continue };
        let Some(tag) = first.text.strip_suffix(':') else { break };
        words.take();
        match tag {
            "source" => head.source = words.rest(),
            "covers" => {
                while let Some(id) = words.take() {
                    head.covers.push(id.text.to_owned());
                }
            }
            "where" => {
                let place = words.need("any, dut or here")?;
                head.place = Some(line.one_of(place, PLACES, "a place")?);
                words.done()?;
            }
            _ => return line.unknown(first.to(tag.len()), "a tag", TAGS.iter().copied()),
        }
    }
    Ok((head, at))
}

/// The `qp` line, which comes first.
fn qp_line(lines: &[Line<'_>], at: usize, name: &str) -> Result<(QpSetup, usize)> {
    for (i, line) in lines.iter().enumerate().skip(at) {
        let mut words = line.words();
        let Some(word) = words.take() else { continue };
        if word.text != "qp" {
            return line.error(word, "qp rc or qp uc");
        }
        return Ok((connection::setup(&mut words)?, i + 1));
    }
    Line { file: name, number: lines.len() as u32, text: "", comment: "" }
        .error(Word { text: "", column: 1 }, "qp rc or qp uc")
}

/// All steps, with `repeat` blocks written out.
fn steps(lines: &[Line<'_>], setup: &QpSetup) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut i = 0;
    while let Some(line) = lines.get(i) {
        let mut words = line.words();
        match words.take() {
            None => {}
            Some(word) if word.text == "repeat" => {
                let rounds = words.need("how often")?;
                let rounds = line.at_most(rounds, MAX_ROUNDS)?;
                words.done()?;
                let body = block(&lines[i..], word)?;
                for round in 0..rounds {
                    repeat(&lines[i + 1..i + 1 + body], round, setup, &mut steps)?;
                }
                i += body + 1;
            }
            Some(_) => steps.push(step(line, setup)?),
        }
        i += 1;
    }
    Ok(steps)
}

/// Lines between a `repeat` and its `end`.
fn block(lines: &[Line<'_>], repeat: Word<'_>) -> Result<usize> {
    let is_end = |line: &Line<'_>| line.words().take().is_some_and(|word| word.text == "end");
    match lines.iter().skip(1).position(is_end) {
        Some(body) => Ok(body),
        None => lines[0].error(repeat, "an `end` behind this repeat"),
    }
}

/// One round, with `$i` replaced by its number.
fn repeat(lines: &[Line<'_>], round: u64, setup: &QpSetup, steps: &mut Vec<Step>) -> Result<()> {
    for line in lines {
        let text = line.text.replace("$i", &round.to_string());
        let line = Line { text: &text, comment: if round == 0 { line.comment } else { "" }, ..*line };
        if line.words().peek().is_some() {
            steps.push(step(&line, setup)?);
        }
    }
    Ok(())
}

fn step(line: &Line<'_>, setup: &QpSetup) -> Result<Step> {
    let mut words = line.words();
    let mut when = When { from: Delay::Ns(0), to: None };
    if let Some(word) = words.peek()
        && word.text.starts_with('+')
    {
        when = line.when(word)?;
        words.take();
    }
    let text = words.rest();
    let action = action(&mut words, setup)?;
    words.done()?;
    let waits_for_device = matches!(action, Action::Out(_) | Action::Wc(_) | Action::Event(_));
    if when.to.is_some() && !waits_for_device {
        return line
            .error(Word { text: line.text.trim(), column: 1 }, "one time: a window is for what the device does");
    }
    Ok(Step { line: line.number, text, comment: line.comment.to_owned(), when, action })
}

fn action(words: &mut Words<'_>, setup: &QpSetup) -> Result<Action> {
    let line = words.line;
    let name = words.need("a statement")?;
    Ok(match name.text {
        ">" => Action::Out(packet::packet(words, false)?),
        ">*" => Action::Tolerate(packet::packet(words, false)?),
        "<" => Action::In(packet::packet(words, true)?),
        "post_send" => Action::PostSend(post::send(words)?),
        "post_recv" => Action::PostRecv(post::recv(words)?),
        "wc" => Action::Wc(post::completion(words)?),
        "event" => {
            let event = words.need("an event")?;
            Action::Event(line.one_of(event, names::EVENTS, "an event")?)
        }
        "silent" => Action::Silent,
        "no" => {
            let what = words.need("wc or event")?;
            match what.text {
                "wc" => Action::NoWc,
                "event" => Action::NoEvent,
                _ => return line.error(what, "wc or event"),
            }
        }
        "expect" => Action::Expect(expect(words)?),
        "mr" => Action::Register(post::region(words)?),
        "dereg" => Action::Deregister(words.need("a region")?.text.to_owned()),
        "set" => {
            let place = words.need("a piece of a region: name[start..end]")?;
            let place = line.span(place)?;
            sign(words, &["="])?;
            let data = words.need("bytes")?;
            Action::Set(place, line.data(data)?)
        }
        "modify" => Action::Modify(connection::modify(words, setup)?),
        "arm" => {
            let (side, solicited) = post::arm(words)?;
            Action::Arm(side, solicited)
        }
        _ => return line.unknown(name, "a statement", STATEMENTS.iter().copied()),
    })
}

fn sign<'a>(words: &mut Words<'a>, signs: &[&str]) -> Result<Word<'a>> {
    let word = words.need(&signs.join(" or "))?;
    if signs.contains(&word.text) { Ok(word) } else { words.line.error(word, signs.join(" or ")) }
}

fn compare(words: &mut Words<'_>) -> Result<Compare> {
    let word = sign(words, &["==", ">=", "<="])?;
    Ok(match word.text {
        ">=" => Compare::AtLeast,
        "<=" => Compare::AtMost,
        _ => Compare::Equal,
    })
}

fn expect(words: &mut Words<'_>) -> Result<Expect> {
    let line = words.line;
    let what = words.need("counter, drop, attr, state or mem")?;
    match what.text {
        "state" => {
            sign(words, &["=="])?;
            let state = words.need("a state")?;
            Ok(Expect::State(line.one_of(state, names::STATES, "a state")?))
        }
        "mem" => {
            let place = words.need("a piece of a region: name[start..end]")?;
            let place = line.span(place)?;
            sign(words, &["=="])?;
            let data = words.need("bytes")?;
            Ok(Expect::Memory(place, line.data(data)?))
        }
        "counter" | "drop" | "attr" => {
            let name = words.need("a name")?;
            let counters = QpCounters::default();
            let known: Vec<&str> = match what.text {
                "counter" => counters.iter().map(|(name, _)| name).collect(),
                "drop" => DropReason::ALL.iter().map(|reason| reason.name()).collect(),
                _ => ATTRIBUTES.to_vec(),
            };
            if !known.contains(&name.text) {
                return line.unknown(name, "a name that the device knows", known.into_iter());
            }
            let compare = compare(words)?;
            let value = words.need("a number")?;
            let value = line.int(value)?;
            let name = name.text.to_owned();
            Ok(match what.text {
                "counter" => Expect::Counter(name, compare, value),
                "drop" => Expect::Drop(name, compare, value),
                _ => Expect::Attr(name, compare, value),
            })
        }
        _ => line.error(what, "counter, drop, attr, state or mem"),
    }
}
