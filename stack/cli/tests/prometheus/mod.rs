//! A reader of Prometheus' text format (version 0.0.4) that is strict: what it takes every scraper takes.
//!
//! In: a page. Out: its families with their samples, or which line breaks which rule.

use std::collections::BTreeSet;

#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

pub type Labels = Vec<(String, String)>;

#[derive(Debug)]
pub struct Sample {
    pub labels: Labels,
    pub value: f64,
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| &**value)
    }
}

fn is_name(text: &str, colon: bool) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || colon && c == ':';
    text.chars().all(good) && text.starts_with(|c: char| !c.is_ascii_digit())
}

/// `{a="x",b="y"}`: the labels and what stands behind them.
fn labels(text: &str) -> Result<(Labels, &str), String> {
    let mut rest = text.strip_prefix('{').ok_or("no labels")?;
    let mut out = Vec::new();
    loop {
        let (name, behind) = rest.split_once("=\"").ok_or("no value of a label")?;
        if !is_name(name, false) || name.starts_with("__") {
            return Err(format!("label {name:?}"));
        }
        let mut value = String::new();
        let mut chars = behind.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, '\\')) => value.push('\\'),
                    Some((_, '"')) => value.push('"'),
                    Some((_, 'n')) => value.push('\n'),
                    other => return Err(format!("escape {other:?}")),
                },
                Some((_, c)) => value.push(c),
                None => return Err("a value without an end".to_owned()),
            }
        };
        out.push((name.to_owned(), value));
        let behind = &behind[end + 1..];
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok((out, behind.strip_prefix('}').ok_or("labels without an end")?)),
        }
    }
}

pub fn parse(page: &str) -> Result<Vec<Family>, String> {
    let mut families: Vec<Family> = Vec::new();
    let mut help: Option<&str> = None;
    let mut series = BTreeSet::new();
    if !page.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in page.lines() {
        let wrong = |why: &str| format!("{why}: {line}");
        if let Some(text) = line.strip_prefix("# HELP ") {
            let (name, _) = text.split_once(' ').ok_or_else(|| wrong("no help"))?;
            help = Some(name);
        } else if let Some(text) = line.strip_prefix("# TYPE ") {
            let (name, kind) = text.split_once(' ').ok_or_else(|| wrong("no type"))?;
            let known = ["counter", "gauge"].contains(&kind) && is_name(name, true) && help == Some(name);
            if !known || families.iter().any(|family| family.name == name) {
                return Err(wrong("a type that is unknown, without help, or given before"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                return Err(wrong("counters, and only they, end in _total"));
            }
            families.push(Family { name: name.to_owned(), kind: kind.to_owned(), samples: Vec::new() });
        } else {
            let family = families.last_mut().ok_or_else(|| wrong("a sample before any type"))?;
            let rest = line.strip_prefix(&*family.name).ok_or_else(|| wrong("a sample of another family"))?;
            let (labels, value) = labels(rest).map_err(|why| wrong(&why))?;
            let value: f64 = value.trim().parse().map_err(|_| wrong("no number"))?;
            if family.kind == "counter" && value < 0.0 {
                return Err(wrong("a negative counter"));
            }
            if !series.insert((family.name.clone(), labels.clone())) {
                return Err(wrong("given twice"));
            }
            family.samples.push(Sample { labels, value });
        }
    }
    Ok(families)
}
