//! Packets taken apart, as a page holds them: what they have in common stands once.
//!
//! In: bytes from the IP header on. Out: tables that the page's script puts a packet together from: shapes of headers, words for values,
//! payloads, and for each packet its own bytes. Names are a contract with `page.js`.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use xroce_wire::Form;

use crate::fields::{self, Field, Header};

/// A field of a shape: name, bits, how its value is written, and what the ICRC has to do with it. Where it lies follows from those before.
type Place = (&'static str, usize, &'static str, &'static str);

/// A header without its values: short name, long name, fields.
type Shape = (&'static str, &'static str, Vec<Place>);

/// A packet: which layout; its bytes without the payload; which payload; and by the number of a field the words that it alone has.
type View = (usize, String, Option<usize>, BTreeMap<usize, String>);

/// All packets of a page.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Views {
    /// What fields are for, by `HEADER.FIELD`.
    glossary: BTreeMap<String, &'static str>,
    shapes: Vec<Shape>,
    /// The shapes of a packet's headers.
    layouts: Vec<Vec<usize>>,
    /// What values say, by `HEADER.FIELD`; an empty value stands for all.
    says: BTreeMap<String, BTreeMap<String, String>>,
    /// Addresses, by their bytes in hexadecimal.
    addresses: BTreeMap<String, String>,
    payloads: Vec<String>,
    views: Vec<View>,
    #[serde(skip)]
    known: Known,
}

/// Where what is in a table stands there.
#[derive(Default)]
struct Known {
    shapes: HashMap<Shape, usize>,
    layouts: HashMap<Vec<usize>, usize>,
    payloads: HashMap<Vec<u8>, usize>,
    views: HashMap<Vec<u8>, usize>,
}

impl Views {
    /// Takes a packet in; gives its number among the views.
    pub(super) fn add(&mut self, bytes: &[u8]) -> usize {
        if let Some(known) = self.known.views.get(bytes) {
            return *known;
        }
        let headers = fields::headers(bytes);
        let mut own = BTreeMap::new();
        let fields = headers.iter().flat_map(|header| header.fields.iter().map(move |field| (header, field)));
        for (number, (header, field)) in fields.enumerate() {
            self.words(bytes, header, field, (number, &mut own));
        }
        let shapes =
            headers.iter().map(|header| once(&mut self.shapes, &mut self.known.shapes, shape(header))).collect();
        let layout = once(&mut self.layouts, &mut self.known.layouts, shapes);
        let data = headers.iter().find(|header| header.name == "Payload").and_then(|header| header.fields.first());
        let range = data.map_or(0..0, |field| field.at / 8..(field.at + field.bits) / 8);
        let payload = bytes.get(range.clone()).filter(|payload| !payload.is_empty()).map(|payload| {
            let next = self.payloads.len();
            *self.known.payloads.entry(payload.to_vec()).or_insert_with(|| {
                self.payloads.push(base64(payload));
                next
            })
        });
        let rest = [&bytes[..range.start], &bytes[range.end..]].concat();
        self.views.push((layout, base64(&rest), payload, own));
        self.known.views.insert(bytes.to_vec(), self.views.len() - 1);
        self.views.len() - 1
    }

    /// What a value says and what its field is for.
    fn words(
        &mut self,
        bytes: &[u8],
        header: &Header,
        field: &Field,
        (number, own): (usize, &mut BTreeMap<usize, String>),
    ) {
        let name = format!("{}.{}", header.name, field.name);
        if field.form == Form::Address {
            let octets = bytes.get(field.at / 8..(field.at + field.bits) / 8).unwrap_or(&[]);
            self.addresses.insert(octets.iter().map(|byte| format!("{byte:02x}")).collect(), field.value.clone());
        }
        match (header.name, field.name) {
            // Said with the MSN.
            ("AETH", "Syndrome") => {
                own.insert(number, field.says.clone());
            }
            // Of all that are right nothing but that.
            ("ICRC", _) if field.says == "right" => {
                self.says.entry(name.clone()).or_default().insert(String::new(), field.says.clone());
            }
            ("ICRC", _) => {
                own.insert(number, field.says.clone());
            }
            _ if field.says.is_empty() || twofold(header, field) => {}
            _ => {
                self.says.entry(name.clone()).or_default().insert(field.value.clone(), field.says.clone());
            }
        }
        if !field.about.is_empty() {
            self.glossary.insert(name, field.about);
        }
    }
}

/// The place of a value in a table that has each once.
fn once<T: Clone + Eq + std::hash::Hash>(table: &mut Vec<T>, known: &mut HashMap<T, usize>, value: T) -> usize {
    *known.entry(value).or_insert_with_key(|value| {
        table.push(value.clone());
        table.len() - 1
    })
}

fn shape(header: &Header) -> Shape {
    let place = |field: &Field| {
        let form = match (field.form, twofold(header, field)) {
            (Form::Decimal | Form::Flag, false) => "d",
            (Form::Decimal | Form::Flag, true) => "dx",
            (Form::Hex, false) => "x",
            (Form::Hex, true) => "xd",
            (Form::Address, _) => "a",
            (Form::Bytes, _) => "b",
        };
        (field.name, field.bits, form, field.cover)
    };
    (header.name, header.title, header.fields.iter().map(place).collect())
}

/// Whether a value says itself once more, in hexadecimal or decimal.
fn twofold(header: &Header, field: &Field) -> bool {
    matches!(
        (header.name, field.name),
        ("BTH", "PSN") | ("AtomicETH" | "AtomicAckETH", "Swap or add" | "Compare" | "Original")
    )
}

/// Base64 of RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for sextet in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * sextet) & 63) as usize];
            out.push(if sextet > three.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
