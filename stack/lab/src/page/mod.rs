//! One HTML page that holds a whole ladder: no network access, no library, nothing beside it.
//!
//! In: a [`Ladder`]. Out: the page. The template, its style and its script are files beside this one; what they show is data,
//! as JSON inside the page.

mod data;
mod views;

use std::fmt::Write;

use crate::ladder::Ladder;
use data::Data;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
///
/// # Errors
/// When the data cannot be written as JSON, which no ladder brings about.
pub fn page(ladder: &Ladder) -> Result<String, serde_json::Error> {
    let json = json(ladder)?;
    let (title, text) = (escaped(&ladder.title), escaped(&crate::text(ladder)));
    let parts = [("title", &*title), ("css", STYLE), ("js", SCRIPT), ("data", &*json), ("text", &*text)];
    let mut page = String::with_capacity(TEMPLATE.len() + json.len() + text.len() + STYLE.len() + SCRIPT.len());
    let mut rest = TEMPLATE;
    // One pass, so that nothing in a part is taken for a place of another.
    while let Some((before, behind)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = behind.split_once("}}").unwrap_or((behind, ""));
        page.push_str(parts.iter().find(|(n, _)| *n == name).map_or("", |(_, text)| text));
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// The data of the page. `<` is written as an escape, so that no text ends the script element it stands in.
pub(crate) fn json(ladder: &Ladder) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(&Data::new(ladder))?.replace('<', "\\u003c"))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '"' => {
                let _ = write!(out, "&#{};", c as u32);
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let mut ladder = Ladder { title: "</title><b>{{data}}".into(), ..Ladder::default() };
        ladder.about.push("</script><script>alert(1)</script>".into());
        let page = page(&ladder).unwrap();
        assert!(!page.contains("</title><b>") && !page.contains("<script>alert"), "markup got through");
        assert_eq!(page.matches("\"version\":2").count(), 1, "the data stands once");
        assert_eq!(page.matches("</script>").count(), 2, "that of the data, and that of the code");
    }
}
