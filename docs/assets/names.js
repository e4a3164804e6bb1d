// Names within lines and in tables: short ones with hyphens (--out) do not break, long ones do, after a dot, slash, colon or underscore.
const SHORT = 24;

document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".md-typeset :not(pre) > code")) {
    if (element.childElementCount > 0) continue;
    const parts = element.textContent.split(/(?<=[./:_])(?=[^./:_])/);
    if (element.textContent.length <= SHORT) {
      element.classList.toggle("whole", element.textContent.includes("-") && !element.textContent.includes(" "));
    } else if (parts.length > 1) {
      element.replaceChildren(...parts.flatMap((part, k) => (k ? [document.createElement("wbr"), part] : [part])));
    }
  }
});
