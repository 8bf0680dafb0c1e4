package hifi;

import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.plans.logical.*;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** Plans that are analysed once and read any source. Compiled by Janino, which has no generics. */
public class PreparedPlan {
    /** An analysed plan whose only leaf is an analysed source with the same columns, in the same order. */
    public static LogicalPlan reading(LogicalPlan plan, LogicalPlan source) {
        LogicalPlan result = (LogicalPlan) new Replacing(source).apply(plan);
        result.setAnalyzed();
        return result;
    }

    public static class Replacing extends scala.runtime.AbstractFunction1 {
        private final LogicalPlan source;

        public Replacing(LogicalPlan source) {
            this.source = source;
        }

        public Object apply(Object node) {
            LogicalPlan plan = (LogicalPlan) node;
            if (!plan.children().isEmpty()) {
                return plan.mapChildren(this);
            }
            Seq columns = plan.output();
            Seq sourceColumns = source.output();
            java.util.List aliases = new java.util.ArrayList();
            for (int index = 0; index < columns.size(); index++) {
                Attribute column = (Attribute) columns.apply(index);
                aliases.add(
                    new Alias(
                        (Expression) sourceColumns.apply(index),
                        column.name(),
                        column.exprId(),
                        (Seq) Nil$.MODULE$,
                        Option.apply(null),
                        (Seq) Nil$.MODULE$
                    )
                );
            }
            return new Project(org.apache.spark.api.python.PythonUtils.toSeq(aliases), source);
        }
    }
}
