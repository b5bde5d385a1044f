// For keyboards and screen readers, beside the theme: boxes that scroll can be focused, landmarks have names.
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".table-wrapper, .highlight pre")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
  const names = { ".sidebar-drawer": "Pages", ".toc-drawer": "On this page", ".ap-timer": "Time" };
  for (const [place, name] of Object.entries(names)) {
    for (const one of document.querySelectorAll(place)) one.setAttribute("aria-label", name);
  }
});
