#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/text.h"
#include "base/try.h"
#include "text/utf8.h"

namespace danqing {
namespace {

constexpr char32_t kLowChars = 0x800;

}  // namespace

void Bpe::MergeTable::reserve(size_t merges) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, merges * 2));
  slots_.assign(size, {});
  shift_ = 64 - std::countr_zero(size);
}

size_t Bpe::MergeTable::slot(uint64_t pair) const {
  size_t i = static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> shift_);
  while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & (slots_.size() - 1);
  return i;
}

void Bpe::MergeTable::put(int32_t left, int32_t right, int32_t rank, int32_t id) {
  const uint64_t pair = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  slots_[slot(pair)] = {pair, rank, id};
}

const Bpe::MergeTable::Merge* Bpe::MergeTable::find(int32_t left, int32_t right) const {
  const Merge& m = slots_[slot(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right))];
  return m.pair == kEmpty ? nullptr : &m;
}

Result<Bpe> Bpe::build(const JsonObject& model, BpeSource source, const std::string& where) {
  DQ_TRY(const std::string type, model.string("type", "BPE"));
  if (type != "BPE") return bad_input("[tokenizer] {}: expected a model of type BPE, got {}", where, one_line(type));
  if (!source.has_vocab) return bad_input("[tokenizer] {}: model.vocab expected an object of tokens and ids", where);
  if (!source.has_merges) return bad_input("[tokenizer] {}: model.merges expected a list of merges", where);
  DQ_TRY(const double dropout, model.number("dropout", 0.0));
  if (dropout != 0)
    return bad_input("[tokenizer] {}: model.dropout expected null, got {} (ids would be random)", where, dropout);
  Bpe b;
  DQ_TRY(b.vocabulary_, Vocabulary::build(source, where));
  DQ_TRY(b.prefix_, model.string("continuing_subword_prefix", ""));
  DQ_TRY(b.suffix_, model.string("end_of_word_suffix", ""));
  DQ_TRY(b.fuse_unk_, model.boolean("fuse_unk", false));
  DQ_TRY(b.ignore_merges_, model.boolean("ignore_merges", false));
  DQ_TRY(const bool byte_fallback, model.boolean("byte_fallback", false));
  for (int i = 0; byte_fallback && i < 256; ++i)
    b.byte_ids_.push_back(b.vocabulary_.id_of(fmt::format("<0x{:02X}>", i)));
  DQ_TRY(const std::string unk, model.string("unk_token", ""));
  if (model.has("unk_token")) {
    b.unk_id_ = b.vocabulary_.id_of(unk);
    if (b.unk_id_ < 0)
      return bad_input("[tokenizer] {}: model.unk_token '{}' is not in the vocabulary", where, one_line(unk));
  }
  for (char32_t c = 0; c < kLowChars; ++c) {
    std::string s;
    utf8::append(s, c);
    b.low_chars_.push_back(b.vocabulary_.id_of(s));
  }
  DQ_CHECK(b.add_merges(source, where));
  return b;
}

Result<void> Bpe::add_merges(const BpeSource& source, const std::string& where) {
  merges_.reserve(source.merges.size());
  std::string merged;
  for (size_t i = 0; i < source.merges.size(); ++i) {
    const BpeSource::Merge& m = source.merges[i];
    const std::string_view left(source.merge_text.data() + m.begin, m.left);
    const std::string_view right(source.merge_text.data() + m.begin + m.left, m.right);
    merged.assign(left).append(right.substr(std::min(right.size(), prefix_.size())));
    int32_t ids[3];
    const std::string_view texts[3] = {left, right, merged};
    for (int k = 0; k < 3; ++k) {
      ids[k] = vocabulary_.id_of(texts[k]);
      if (ids[k] < 0)
        return bad_input("[tokenizer] {}: merge {} names '{}', which is not in the vocabulary", where, i,
                         one_line(texts[k]));
    }
    merges_.put(ids[0], ids[1], static_cast<int32_t>(i), ids[2]);
  }
  return {};
}

void Bpe::split(std::string_view word, Scratch& s) const {
  s.symbols.clear();
  const auto add = [&](int32_t id) {
    const auto n = static_cast<int32_t>(s.symbols.size());
    s.symbols.push_back({id, n - 1, n + 1, -1, -1});
  };
  bool pending_unk = false;
  std::string affixed;
  for (size_t i = 0; i < word.size();) {
    const size_t begin = i;
    const char32_t c = utf8::next(word, i);
    std::string_view text = word.substr(begin, i - begin);
    int32_t id = -1;
    const bool prefixed = begin > 0 && !prefix_.empty(), suffixed = i == word.size() && !suffix_.empty();
    if (prefixed || suffixed) {
      affixed = (prefixed ? prefix_ : "") + std::string(text) + (suffixed ? suffix_ : "");
      id = vocabulary_.id_of(text = affixed);
    } else {
      id = c < kLowChars ? low_chars_[c] : vocabulary_.id_of(text);
    }
    if (id >= 0) {
      if (pending_unk) add(unk_id_);
      pending_unk = false;
      add(id);
      continue;
    }
    const auto known = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)] >= 0; };
    if (!byte_ids_.empty() && std::all_of(text.begin(), text.end(), known)) {
      for (const char byte : text) add(byte_ids_[static_cast<unsigned char>(byte)]);
    } else if (unk_id_ >= 0) {  // without an unknown token the character is left out
      if (pending_unk && !fuse_unk_) add(unk_id_);
      pending_unk = true;
    }
  }
  if (pending_unk) add(unk_id_);
  if (!s.symbols.empty()) s.symbols.back().next = -1;
}

bool Bpe::look_up(Scratch& s, int32_t left) const {
  if (left < 0) return false;
  Scratch::Symbol& a = s.symbols[static_cast<size_t>(left)];
  const auto* m = a.next < 0 ? nullptr : merges_.find(a.id, s.symbols[static_cast<size_t>(a.next)].id);
  a.rank = m ? m->rank : -1;
  a.merged = m ? m->id : -1;
  return m != nullptr;
}

void Bpe::merge(Scratch& s) const {
  s.heap.clear();
  const auto entry = [&](int32_t position) {
    return static_cast<uint64_t>(s.symbols[static_cast<size_t>(position)].rank) << 32 | static_cast<uint32_t>(position);
  };
  for (size_t i = 0; i + 1 < s.symbols.size(); ++i)
    if (look_up(s, static_cast<int32_t>(i))) s.heap.push_back(entry(static_cast<int32_t>(i)));
  std::make_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  const auto offer = [&](int32_t position) {
    if (!look_up(s, position)) return;
    s.heap.push_back(entry(position));
    std::push_heap(s.heap.begin(), s.heap.end(), std::greater<>());
  };
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), std::greater<>());
    const uint64_t top = s.heap.back();
    s.heap.pop_back();
    const auto position = static_cast<int32_t>(top & 0xFFFFFFFFu);
    Scratch::Symbol& a = s.symbols[static_cast<size_t>(position)];
    if (a.id < 0 || a.rank != static_cast<int32_t>(top >> 32)) continue;  // it or its neighbour has changed since
    Scratch::Symbol& b = s.symbols[static_cast<size_t>(a.next)];
    a.id = a.merged;
    a.next = b.next;
    b.id = -1;
    if (a.next >= 0) s.symbols[static_cast<size_t>(a.next)].previous = position;
    offer(a.previous);
    offer(position);
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
  if (ignore_merges_) {
    if (const int32_t id = vocabulary_.id_of(word); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  split(word, scratch);
  merge(scratch);
  for (const Scratch::Symbol& s : scratch.symbols)
    if (s.id >= 0) out.push_back(s.id);
}

}  // namespace danqing
