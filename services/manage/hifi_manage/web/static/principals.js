"use strict";
page(async () => {
  const { json: { principals, revoked } } = await call("GET", "/principals");
  fillTable("principals", [
    ...principals.map((principal) => [
      principal.name,
      principal.role,
      principal.pipes.join(", ") || "all",
      principal.expires_us === null ? "never" : moment(principal.expires_us),
      principal.last_used_us === null ? "never" : moment(principal.last_used_us),
      principal.author,
      moment(principal.at_us),
    ]),
    ...revoked.map((person) => [person.name, "revoked", "", "", "", person.author, moment(person.at_us)]),
  ]);
});
