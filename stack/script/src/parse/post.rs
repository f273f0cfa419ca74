//! What the application does: registers, posts, arms; and completions.

use super::line::{Line, Result, Word, Words};
use crate::craft::DEFAULT_REGION;
use crate::expr::Data;
use crate::model::{CqSide, MrSpec, PostRecv, PostSend, Refusal, Span, WcSpec};
use crate::names::{self, PostOp};
use xroce_transport::memory::Access;
use xroce_transport::wc::WcStatus;

/// Where requests aim at in the script's imaginary memory.
const PEER_VA: u64 = 0x1_0000;
const PEER_RKEY: u32 = 0x7001;

/// `refused` or `refused="text of the error"`.
pub(super) fn refused(line: &Line<'_>, value: Option<Word<'_>>) -> Result<Refusal> {
    Ok(Refusal { says: value.map_or(Ok(String::new()), |v| line.quoted(v))? })
}

/// The first `len` bytes of the default region.
fn whole(len: u64) -> Vec<Span> {
    match len {
        0 => Vec::new(),
        len => vec![Span { mr: DEFAULT_REGION.into(), start: 0, end: len }],
    }
}

fn need_value<'a>(line: &Line<'_>, field: Word<'a>, value: Option<Word<'a>>) -> Result<Word<'a>> {
    match value {
        Some(value) => Ok(value),
        None => line.error(field, format!("{}=VALUE", field.text)),
    }
}

/// `mr name len=64 rights=lw,rw iova=0 fill=pat foreign`
pub(super) fn region(words: &mut Words<'_>) -> Result<MrSpec> {
    const FIELDS: &[&str] = &["len", "rights", "iova", "fill", "foreign", "refused"];
    let line = words.line;
    let name = words.need("a name for the region")?;
    if !name.text.starts_with(|c: char| c.is_ascii_alphabetic()) || name.text.contains('=') {
        return line.error(name, "a name for the region");
    }
    let mut spec = MrSpec {
        name: name.text.to_owned(),
        len: 1 << 16,
        rights: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        iova: None,
        fill: Data::Fill(0),
        foreign: false,
        refused: None,
    };
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        match field.text {
            "foreign" => spec.foreign = true,
            "refused" => spec.refused = Some(refused(&line, value)?),
            "len" => spec.len = line.int(need_value(&line, field, value)?)?,
            "rights" => spec.rights = line.rights(need_value(&line, field, value)?)?,
            "iova" => spec.iova = Some(line.int(need_value(&line, field, value)?)?),
            "fill" => spec.fill = line.data(need_value(&line, field, value)?)?,
            _ => return line.unknown(field, "a property of the region", FIELDS.iter().copied()),
        }
    }
    Ok(spec)
}

const SEND_FIELDS: &[&str] = &[
    "id",
    "len",
    "from",
    "into",
    "inline",
    "lkey",
    "va",
    "rkey",
    "imm",
    "inv",
    "add",
    "swap",
    "compare",
    "fence",
    "solicited",
    "unsignaled",
    "refused",
];

/// `post_send id=1 WRITE len=10 va=0x1000 rkey=7 fence`
pub(super) fn send(words: &mut Words<'_>) -> Result<PostSend> {
    let line = words.line;
    let mut id = None;
    let mut op = None;
    let mut post = PostSend {
        id: 0,
        op: PostOp::Send,
        sges: Vec::new(),
        inline: None,
        lkey: None,
        va: PEER_VA,
        rkey: PEER_RKEY,
        imm: 0,
        swap_add: 0,
        compare: 0,
        fence: false,
        solicited: false,
        unsignaled: false,
        refused: None,
    };
    let mut placed = false;
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        match (field.text, value) {
            ("id", Some(value)) => id = Some(line.int(value)?),
            ("fence", None) => post.fence = true,
            ("solicited", None) => post.solicited = true,
            ("unsignaled", None) => post.unsignaled = true,
            ("refused", _) => post.refused = Some(refused(&line, value)?),
            ("len", Some(value)) => (post.sges, placed) = (whole(line.int(value)?), true),
            ("from" | "into", Some(value)) => (post.sges, placed) = (line.spans(value)?, true),
            (name, Some(value)) if SEND_FIELDS.contains(&name) => send_field(&mut post, &line, field, value)?,
            (name, None) if SEND_FIELDS.contains(&name) => return line.error(field, format!("{name}=VALUE")),
            (_, None) if op.is_none() => op = Some(line.one_of(field, names::POSTS, "an operation")?),
            _ => return line.unknown(field, "a field of post_send", SEND_FIELDS.iter().copied()),
        }
    }
    let (Some(id), Some(op)) = (id, op) else {
        return line.error(words.end, if id.is_none() { "id=NUMBER" } else { "an operation" });
    };
    (post.id, post.op) = (id, op);
    if matches!(op, PostOp::CmpSwap | PostOp::FetchAdd) && !placed {
        post.sges = whole(8);
    }
    Ok(post)
}

fn send_field(post: &mut PostSend, line: &Line<'_>, field: Word<'_>, value: Word<'_>) -> Result<()> {
    match field.text {
        "inline" => {
            post.inline = Some(match value.text.strip_prefix("pat(").and_then(|rest| rest.strip_suffix(')')) {
                Some(len) => {
                    Data::Pattern(0).bytes(line.at_most(value.from("pat(".len()).to(len.len()), 8192)? as usize)
                }
                None => {
                    let data = line.data(value)?;
                    data.bytes(data.own_len().unwrap_or(0))
                }
            });
        }
        "lkey" => post.lkey = Some(line.num(value)?),
        "va" => post.va = line.int(value)?,
        "rkey" | "inv" => post.rkey = line.u32(value)?,
        "imm" => post.imm = line.u32(value)?,
        "add" | "swap" => post.swap_add = line.int(value)?,
        "compare" => post.compare = line.int(value)?,
        _ => return line.error(field, "a name without a value"),
    }
    Ok(())
}

/// `post_recv id=9 len=64`
pub(super) fn recv(words: &mut Words<'_>) -> Result<PostRecv> {
    const FIELDS: &[&str] = &["id", "len", "into", "lkey", "refused"];
    let line = words.line;
    let mut id = None;
    let mut post = PostRecv { id: 0, sges: Vec::new(), lkey: None, refused: None };
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        match field.text {
            "refused" => post.refused = Some(refused(&line, value)?),
            "id" => id = Some(line.int(need_value(&line, field, value)?)?),
            "len" => post.sges = whole(line.int(need_value(&line, field, value)?)?),
            "into" => post.sges = line.spans(need_value(&line, field, value)?)?,
            "lkey" => post.lkey = Some(line.num(need_value(&line, field, value)?)?),
            _ => return line.unknown(field, "a field of post_recv", FIELDS.iter().copied()),
        }
    }
    match id {
        Some(id) => Ok(PostRecv { id, ..post }),
        None => line.error(words.end, "id=NUMBER"),
    }
}

/// `arm recv solicited`
pub(super) fn arm(words: &mut Words<'_>) -> Result<(CqSide, bool)> {
    const SIDES: names::Table<CqSide> = &[("send", CqSide::Send), ("recv", CqSide::Recv)];
    const FOR: names::Table<bool> = &[("any", false), ("solicited", true)];
    let line = words.line;
    let side = words.need("send or recv")?;
    let wanted = words.need("any or solicited")?;
    Ok((line.one_of(side, SIDES, "a queue")?, line.one_of(wanted, FOR, "what wakes")?))
}

/// `wc id=1 status=success op=SEND len=10`
pub(super) fn completion(words: &mut Words<'_>) -> Result<WcSpec> {
    const FIELDS: &[&str] = &["id", "status", "op", "len", "imm", "inv", "src_qp"];
    let line = words.line;
    let (mut id, mut status) = (None, None);
    let mut spec =
        WcSpec { id: 0, status: WcStatus::Success, opcode: None, len: None, imm: None, inv: None, src_qp: None };
    while let Some(word) = words.take() {
        let (field, value) = word.field();
        if !FIELDS.contains(&field.text) {
            return line.unknown(field, "a field of a completion", FIELDS.iter().copied());
        }
        let value = need_value(&line, field, value)?;
        match field.text {
            "id" => id = Some(line.int(value)?),
            "status" => status = Some(line.one_of(value, names::STATUSES, "a status")?),
            "op" => spec.opcode = Some(line.one_of(value, names::WC_OPCODES, "what completed")?),
            "len" => spec.len = Some(line.u32(value)?),
            "imm" => spec.imm = Some(line.u32(value)?),
            "inv" => spec.inv = Some(line.num(value)?),
            _ => spec.src_qp = Some(line.u24(value)?),
        }
    }
    match (id, status) {
        (Some(id), Some(status)) => Ok(WcSpec { id, status, ..spec }),
        (None, _) => line.error(words.end, "id=NUMBER"),
        _ => line.error(words.end, "status=NAME"),
    }
}
