"use strict";
page(async () => {
  const { json: { principals } } = await call("GET", "/principals");
  fillTable("principals", principals.map((one) => [
    one.name,
    one.role,
    one.pipes.join(", ") || "all",
    one.expires_us === null ? "never" : moment(one.expires_us),
    one.author,
    moment(one.at_us),
  ]));
});
