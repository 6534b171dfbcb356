// The order of the results of the search: a page or a heading that names the words of the query
// comes first, then guides, then explanations; functions and classes come last.
const SECTIONS = { concepts: 3, tutorial: 2, howto: 4, reference: 2, explanation: 1, index: -5 };

var Scorer = {
  score: ([page, title, , , score]) => {
    const query = new URLSearchParams(location.search).get("q") ?? "";
    const words = query.toLowerCase().match(/\w+/g) ?? [];
    const named = words.filter((word) => title.toLowerCase().includes(word.replace(/s$/, "")));
    const share = words.length ? named.length / words.length : 0;
    return score + 12 * share + (SECTIONS[page.split("/")[0]] ?? 0);
  },
  objNameMatch: 2,
  objPartialMatch: 1,
  objPrio: { 0: 2, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
