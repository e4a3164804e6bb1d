// Set the formulas of the page: arithmatex leaves \(...\) within lines and \[...\] between them.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    katex.render(source.slice(2, -2), element, { displayMode: source.startsWith("\\["), throwOnError: false, strict: "ignore" });
  }
});
